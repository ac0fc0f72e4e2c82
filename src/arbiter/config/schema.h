/* The schema of divvy.yaml. The keys of its parts are also listed in messages. */
#ifndef DVD_CONFIG_SCHEMA_H
#define DVD_CONFIG_SCHEMA_H

#include <cyaml/cyaml.h>

extern const cyaml_schema_value_t dvd_file_schema;
extern const cyaml_schema_field_t dvd_file_fields[], dvd_device_fields[], dvd_tenant_fields[], dvd_sandbox_fields[],
    dvd_deadline_fields[];

#endif
