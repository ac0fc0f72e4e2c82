/* Counters by tenant (see accounts.h). */
#include "src/arbiter/ledger/accounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "src/arbiter/ledger/private.h"

struct dvd_accounts *dvd_accounts_new(void)
{
    struct dvd_accounts *accounts = calloc(1, sizeof *accounts);

    if (accounts)
        snprintf(accounts->all[0].name, sizeof accounts->all[0].name, DVD_ACCOUNT_OTHER);
    return accounts;
}

void dvd_accounts_free(struct dvd_accounts *accounts)
{
    free(accounts);
}

/* "pid:NUMBER:PROGRAM" is counted as "program:PROGRAM", and a session without a visible process with all others:
 * numbers would make a new counter for each program that starts. A program chooses its name, so the prefix keeps it
 * apart from tenants of that name. */
static void name_for(const struct dvd_tenant *tenant, char name[DV_MAX_TENANT_NAME])
{
    const char *program = strncmp(tenant->name, "pid:", 4) == 0 ? strchr(tenant->name + 4, ':') : NULL;

    if (!dvd_tenant_is_program(tenant))
        snprintf(name, DV_MAX_TENANT_NAME, "%s", tenant->name);
    else if (program && program[1])
        snprintf(name, DV_MAX_TENANT_NAME, "program%s", program);
    else
        snprintf(name, DV_MAX_TENANT_NAME, DVD_ACCOUNT_OTHER);
}

/* Adds an account whose tenants are gone to that of all others. */
static void fold(struct dvd_accounts *accounts, struct dvd_account *account)
{
    for (uint32_t i = 0; i < DV_MAX_DEVICES; i++) {
        struct dvd_account_device *to = &accounts->all[0].devices[i], *from = &account->devices[i];
        to->is_used |= from->is_used;
        to->used_ns += from->used_ns;
        to->waited_ns += from->waited_ns;
        to->moving_ns += from->moving_ns;
        to->grants += from->grants;
    }
    *account = (struct dvd_account){0};
}

static struct dvd_account *find(struct dvd_accounts *accounts, const char *name)
{
    struct dvd_account *oldest = NULL, *unused = NULL;

    for (size_t i = 0; i <= DV_MAX_ACCOUNTS; i++) {
        struct dvd_account *account = &accounts->all[i];
        if (strcmp(account->name, name) == 0)
            return account;
        if (!account->name[0] && !unused)
            unused = account;
        else if (i > 0 && account->name[0] && !account->tenants && (!oldest || account->left_at < oldest->left_at))
            oldest = account;
    }
    if (!unused && oldest) {
        fold(accounts, oldest);
        unused = oldest;
    }
    if (!unused)
        return &accounts->all[0];
    snprintf(unused->name, sizeof unused->name, "%s", name);
    return unused;
}

void dvd_accounts_enter(struct dvd_accounts *accounts, struct dvd_tenant *tenant)
{
    char name[DV_MAX_TENANT_NAME];

    name_for(tenant, name);
    tenant->account = accounts ? find(accounts, name) : NULL;
    if (tenant->account)
        DL_APPEND2(tenant->account->tenants, tenant, prev_of_account, next_of_account);
}

void dvd_accounts_leave(struct dvd_tenant *tenant, dv_ns now)
{
    if (!tenant->account)
        return;
    DL_DELETE2(tenant->account->tenants, tenant, prev_of_account, next_of_account);
    tenant->account->left_at = now;
    tenant->account = NULL;
}

void dvd_accounts_use(const struct dvd_tenant *tenant, struct dvd_device_id device)
{
    if (tenant->account)
        tenant->account->devices[device.number].is_used = true;
}
