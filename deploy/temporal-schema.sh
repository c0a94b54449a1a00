#!/bin/sh
# Brings both of Temporal's databases to the schema of this version; safe to repeat.
set -eu
for part in temporal visibility; do
    case $part in
    temporal) database=temporal ;;
    visibility) database=temporal_visibility ;;
    esac
    # A version 0.0 is recorded only where there is none yet.
    temporal-sql-tool --db "$database" setup-schema --version 0.0
    temporal-sql-tool --db "$database" update-schema \
        --schema-dir "/etc/temporal/schema/postgresql/v12/$part/versioned"
done
