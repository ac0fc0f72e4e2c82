/* The ledger as a whole (see ledger.h). */
#include "src/arbiter/ledger/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

static uint64_t read_host_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib;
    uint64_t bytes = UINT64_MAX; /* unknown: no request fails because of it */

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = kib << 10;
    if (file)
        fclose(file);
    return bytes;
}

void dvd_ledger_init(struct dvd_ledger *ledger, struct dv_timers *timers, struct dvd_state *state,
                     const struct dvd_ledger_events *events, void *owner)
{
    *ledger = (struct dvd_ledger){
        .timers = timers, .state = state, .events = events, .owner = owner, .read_host_available = read_host_available};
    ledger->accounts = dvd_accounts_new();
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        ledger->devices[i].ledger = ledger;
        ledger->devices[i].id.number = (uint8_t)i;
    }
}

void dvd_ledger_fini(struct dvd_ledger *ledger)
{
    struct dv_timers *timers = ledger->timers;

    dvd_tenants_forget_gone(ledger, true);
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        timers->drop(timers, &ledger->devices[i].timer);
        timers->drop(timers, &ledger->devices[i].memory.patience);
        dvd_entitlements_fini(&ledger->devices[i].entitlements);
    }
    dvd_accounts_free(ledger->accounts);
    ledger->accounts = NULL;
}

void dvd_ledger_set_devices(struct dvd_ledger *ledger, const struct dvd_device_terms *terms, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ledger->devices[i].terms = terms[i];
    for (uint32_t i = count; i < ledger->device_count; i++)
        snprintf(ledger->devices[i].terms.name, sizeof ledger->devices[i].terms.name, "a device that is gone");
    ledger->device_count = count;
}

void dvd_ledger_set_terms(struct dvd_ledger *ledger, const struct dvd_ledger_terms *terms)
{
    ledger->terms = *terms;
    ledger->terms_version++;
}

/* ---- checking ---- */

static unsigned complain(char *text, size_t bytes, const char *what, const char *whose, uint64_t ledger, uint64_t truth)
{
    size_t used = strlen(text);

    if (used < bytes)
        snprintf(text + used, bytes - used, "%s of %s: the ledger says %" PRIu64 ", it is %" PRIu64 "\n", what, whose,
                 ledger, truth);
    return 1;
}

unsigned dvd_ledger_check(const struct dvd_ledger *ledger, char *text, size_t bytes)
{
    unsigned count = 0;

    text[0] = '\0';
    for (const struct dvd_tenant *tenant = ledger->tenants; tenant; tenant = tenant->hh.next)
        for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
            const struct dvd_lease *lease;
            uint64_t reserved = 0;
            if (!tenant->devices[i])
                continue;
            DL_FOREACH2 (tenant->devices[i]->memory.members, lease, memory.next)
                reserved += lease->memory.reserved;
            if (reserved != tenant->devices[i]->memory.reserved)
                count += complain(text, bytes, "reserved bytes", tenant->name, tenant->devices[i]->memory.reserved,
                                  reserved);
        }
    return count;
}

unsigned dvd_lessee_check(const struct dvd_lessee *lessee, uint64_t reserved, uint64_t placed, char *text, size_t bytes)
{
    uint64_t reserved_here = 0, placed_here = 0;
    unsigned count = 0;
    char whose[32];

    for (uint32_t i = 0; lessee->leases && i < lessee->device_count; i++)
        if (lessee->leases[i]) {
            reserved_here += lessee->leases[i]->memory.reserved;
            placed_here += lessee->leases[i]->memory.placed;
        }
    snprintf(whose, sizeof whose, "session %" PRIu64, lessee->id.value);
    if (placed_here < placed)
        count += complain(text, bytes, "bytes on devices", whose, placed_here, placed);
    if (reserved_here != reserved)
        count += complain(text, bytes, "reserved bytes", whose, reserved_here, reserved);
    return count;
}
