#!/bin/sh
# Makes the namespace with its retention and our search attributes; safe to repeat.
# Reads TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE (as the program `temporal` does), RETENTION and
# SEARCH_ATTRIBUTES (names, separated by spaces).
set -eu
if temporal operator namespace describe >/dev/null 2>&1; then
    temporal operator namespace update --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"
else
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"
fi
registered=$(temporal operator search-attribute list)
for name in $SEARCH_ATTRIBUTES; do
    case $registered in
    *"$name"*) ;;
    *) temporal operator search-attribute create --name "$name" --type Keyword ;;
    esac
done
