// Serve stripe-stateful-mock on a free port of this machine and print the port.
// Its own command cannot choose a port by itself, and listens on every address.
"use strict";
const { createExpressApp } = require("stripe-stateful-mock");
require("loglevel").setLevel("silent"); // it logs the bodies that it refuses

const server = createExpressApp().listen(0, "127.0.0.1", () => {
    console.log(server.address().port);
});
