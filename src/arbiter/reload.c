/* The configuration: read at the start, and again while divvyd runs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/arbiter/arbiter.h"
#include "src/arbiter/workers/icd_directory.h"

static int read_config(const struct dvd_arbiter *arbiter, struct dvd_config *config, char *error, size_t error_bytes)
{
    int status = dvd_config_load(config, arbiter->config_path, arbiter->config_must_exist, error, error_bytes);

    if (status < 0)
        return status;
    status = dvd_config_set_mode(config, arbiter->config_path, arbiter->options.user, geteuid(), error, error_bytes);
    if (status < 0)
        dvd_config_fini(config);
    return status;
}

static void warn(const struct dvd_config *config)
{
    if (config->warning[0])
        dv_warning("%s", config->warning);
}

int dvd_arbiter_load_config(struct dvd_arbiter *arbiter)
{
    char error[1024];

    arbiter->config_must_exist = arbiter->options.config_path != NULL;
    arbiter->config_path = arbiter->options.config_path;
    if (!arbiter->config_path && !arbiter->options.user)
        arbiter->config_path = DV_CONFIG_SYSTEM;
    arbiter->zygote.config_path = arbiter->config_path;
    int status = read_config(arbiter, &arbiter->config, error, sizeof error);
    if (status < 0)
        dv_error("%s", error);
    else
        warn(&arbiter->config);
    return status;
}

void dvd_arbiter_terms_changed(struct dvd_arbiter *arbiter)
{
    struct dvd_ledger_terms terms = dvd_config_ledger_terms(&arbiter->config);

    dvd_ledger_set_terms(&arbiter->ledger, &terms);
}

/* Passes the new configuration to all parts. */
static void apply(struct dvd_arbiter *arbiter, struct dvd_reload *reload)
{
    char error[1024];

    dvd_arbiter_devices_changed(arbiter);
    dvd_arbiter_terms_changed(arbiter);
    dvd_sessions_apply_config(&arbiter->sessions, reload);
    dvd_control_apply_config(&arbiter->control);
    dvd_journal_file_set_readers(&arbiter->sessions.journal.file, dvd_config_operators(&arbiter->config));
    dvd_listener_apply_config(&arbiter->listener);
    dvd_ledger_apply_device_terms(&arbiter->ledger);
    if (dvd_vendors_prepare(arbiter->icd_directory, &arbiter->config, error, sizeof error) < 0)
        dv_error("%s", error);
    dvd_sandboxes_apply_config(&arbiter->sandboxes);
    dvd_zygote_request_probe(&arbiter->zygote); /* the drivers may have changed */
    dvd_keeper_put(&arbiter->keeper, DV_KEEPER_DAEMON);
}

static void log_changes(struct dvd_reload *reload)
{
    for (char *line = reload->text, *end; (end = strchr(line, '\n')); line = end + 1)
        dv_info("%.*s", (int)(end - line), line);
}

void dvd_arbiter_apply_to_restored(struct dvd_arbiter *arbiter)
{
    struct dvd_reload reload = {.is_restart = true};

    dvd_sessions_apply_config(&arbiter->sessions, &reload);
    log_changes(&reload);
}

int dvd_arbiter_reload(struct dvd_arbiter *arbiter, struct dvd_reload *reload)
{
    struct dvd_config config;

    *reload = (struct dvd_reload){0};
    if (arbiter->is_stopping) {
        snprintf(reload->text, sizeof reload->text, "divvyd is ending");
        return -ESHUTDOWN;
    }
    int status = read_config(arbiter, &config, reload->text, sizeof reload->text);
    if (status < 0) {
        dv_error("the configuration is not reloaded, the old one stays in force: %s", reload->text);
        return status;
    }
    dvd_config_fini(&arbiter->config);
    arbiter->config = config;
    apply(arbiter, reload);
    warn(&arbiter->config);
    dv_info("configuration reloaded; changes for running tenants: %u", reload->changes);
    log_changes(reload);
    return 0;
}
