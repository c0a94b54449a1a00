#!/bin/sh
# Runs once, on an empty volume: a role and its databases for each of the two that share this server.
set -eu
psql --username "$POSTGRES_USER" --set ON_ERROR_STOP=1 \
    --set tallystick_password="$TALLYSTICK_ROLE_PASSWORD" \
    --set temporal_password="$TEMPORAL_ROLE_PASSWORD" <<'SQL'
CREATE ROLE tallystick LOGIN PASSWORD :'tallystick_password';
CREATE ROLE temporal LOGIN PASSWORD :'temporal_password';
CREATE DATABASE tallystick OWNER tallystick;
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
SQL
