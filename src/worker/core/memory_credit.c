/* How much the session may allocate on each device, and how much it has. The worker's accounts are the
 * ones that count; a part of the reserve is credit in shared memory, so that the client can create small
 * objects without asking.
 *
 *   reserved at divvyd = used + promised + credit
 */
#include <errno.h>

#include "include/divvy/memory.h"
#include "src/worker/core/runtime.h"

/* Reserve that is kept although nothing uses it, until divvyd calls it back. */
#define CREDIT_LEAST (UINT64_C(4) << 20)
#define CREDIT_MOST (UINT64_C(64) << 20)
#define CREDIT_PART 64 /* of the quota */

static_assert(DV_SHM_CREDITS + DV_SHM_CREDITS_MORE == DV_MAX_DEVICES, "one for each device");

/* A device whose time is not shared out has no account. */
static bool is_managed(const struct dvk_runtime *runtime, uint32_t device)
{
    return runtime->lease && runtime->start->devices[device].leased;
}

void dvk_accounts_start(struct dvk_runtime *runtime)
{
    pthread_mutex_init(&runtime->accounts_lock, NULL);
    for (uint32_t i = 0; i < runtime->start->device_count; i++) {
        uint64_t part = runtime->start->devices[i].memory_bytes / CREDIT_PART;
        runtime->accounts[i].credit_most = part < CREDIT_LEAST ? CREDIT_LEAST : part > CREDIT_MOST ? CREDIT_MOST : part;
        atomic_store(dv_shm_credit(runtime->header, i), is_managed(runtime, i) ? 0 : DV_CREDIT_UNLIMITED);
    }
}

/* With the lock held: takes credit back from the client, at most `most`. Returns how much. */
static uint64_t take_credit(struct dvk_runtime *runtime, uint32_t device, uint64_t most)
{
    struct dvk_account *account = &runtime->accounts[device];
    uint64_t seen = atomic_load(dv_shm_credit(runtime->header, device)), take;

    if (most > account->credit) /* the client may have written anything there */
        most = account->credit;
    do
        take = seen < most ? seen : most;
    while (!atomic_compare_exchange_weak(dv_shm_credit(runtime->header, device), &seen, seen - take));
    account->credit -= take;
    return take;
}

static void give_credit(struct dvk_runtime *runtime, uint32_t device, uint64_t bytes)
{
    runtime->accounts[device].credit += bytes;
    atomic_fetch_add(dv_shm_credit(runtime->header, device), bytes);
}

/* For `divvy check`. */
static void publish(struct dvk_runtime *runtime)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < runtime->start->device_count; i++) {
        const struct dvk_account *account = &runtime->accounts[i];
        sum += account->used + account->promised + account->credit;
    }
    atomic_store(&runtime->header->reserved_bytes, sum);
}

uint64_t dvk_account_call_back(struct dvk_runtime *runtime, uint32_t device)
{
    pthread_mutex_lock(&runtime->accounts_lock);
    uint64_t bytes = take_credit(runtime, device, UINT64_MAX);
    publish(runtime);
    pthread_mutex_unlock(&runtime->accounts_lock);
    return bytes;
}

int dvk_account_claim(struct dvk_runtime *runtime, uint32_t device, uint64_t bytes)
{
    struct dvk_account *account = &runtime->accounts[device];
    uint64_t own, extra;

    if (!is_managed(runtime, device))
        return 0;
    pthread_mutex_lock(&runtime->accounts_lock);
    own = take_credit(runtime, device, bytes);
    account->promised += own;
    extra = account->credit < account->credit_most / 2 ? account->credit_most - account->credit : 0;
    publish(runtime);
    pthread_mutex_unlock(&runtime->accounts_lock);
    if (own == bytes)
        return 0;
    int status = dv_memory_reserve(runtime->lease, device, bytes - own + extra);
    if (status < 0 && extra) {
        extra = 0;
        status = dv_memory_reserve(runtime->lease, device, bytes - own);
    }
    pthread_mutex_lock(&runtime->accounts_lock);
    if (status == 0) {
        account->promised += bytes - own;
        give_credit(runtime, device, extra);
    } else {
        account->promised -= own;
        give_credit(runtime, device, own);
    }
    publish(runtime);
    pthread_mutex_unlock(&runtime->accounts_lock);
    return status;
}

int dvk_account_inherit(struct dvk_runtime *runtime, uint32_t device, uint64_t credit, uint64_t promised)
{
    struct dvk_account *account = &runtime->accounts[device];

    if (!is_managed(runtime, device) || credit > DV_SHM_BYTES_MAX || promised > DV_SHM_BYTES_MAX)
        return -EPROTO;
    int status = dv_memory_reserve(runtime->lease, device, credit + promised);
    if (status < 0)
        return status;
    pthread_mutex_lock(&runtime->accounts_lock);
    account->credit += credit;
    account->promised += promised;
    publish(runtime);
    pthread_mutex_unlock(&runtime->accounts_lock);
    return 0;
}

bool dvk_account_use(struct dvk_runtime *runtime, uint32_t device, uint64_t bytes, bool claimed)
{
    struct dvk_account *account = &runtime->accounts[device];
    uint64_t *from = claimed ? &account->promised : &account->credit;

    if (!is_managed(runtime, device))
        return true;
    pthread_mutex_lock(&runtime->accounts_lock);
    bool enough = *from >= bytes;
    if (enough) {
        *from -= bytes;
        account->used += bytes;
    }
    pthread_mutex_unlock(&runtime->accounts_lock);
    return enough;
}

void dvk_account_drop(struct dvk_runtime *runtime, uint32_t device, uint64_t bytes)
{
    struct dvk_account *account = &runtime->accounts[device];

    if (!is_managed(runtime, device))
        return;
    pthread_mutex_lock(&runtime->accounts_lock);
    account->used -= bytes;
    uint64_t kept = account->credit_most > account->credit ? account->credit_most - account->credit : 0;
    if (kept > bytes)
        kept = bytes;
    give_credit(runtime, device, kept);
    publish(runtime);
    pthread_mutex_unlock(&runtime->accounts_lock);
    if (bytes > kept)
        dv_memory_return(runtime->lease, device, bytes - kept);
}
