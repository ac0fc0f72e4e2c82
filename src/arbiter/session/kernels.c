/* Kernels of a session (see kernels.h). */
#include "src/arbiter/session/kernels.h"

#include <unistd.h>

#include "src/arbiter/session/session.h"
#include "src/base/text.h"

static bool take(struct dv_shm_kernel *record, struct dvd_kernel *found)
{
    uint32_t verdict = record->verdict, reason = record->reason;

    if (verdict == 0 || verdict >= DV_CUT_VERDICTS || reason >= DV_WHOLE_REASONS)
        return false;
    *found = (struct dvd_kernel){.verdict = (enum dv_cut_verdict)verdict,
                                 .reason = (enum dv_whole_reason)reason,
                                 .launches = record->launches,
                                 .cut_launches = record->cut_launches,
                                 .parts = record->parts};
    record->name[sizeof record->name - 1] = '\0';
    dv_text_copy(found->name, sizeof found->name, record->name);
    return true;
}

unsigned dvd_session_read_kernels(const struct dvd_session *session, struct dvd_kernel found[DVD_KERNELS_SHOWN])
{
    struct dv_shm_kernel records[DVD_KERNELS_SHOWN];
    unsigned count = 0;

    /* A page that the worker has not written is read as zeros and stays without memory. */
    ssize_t bytes =
        session->shm_fd < 0 ? -1 : pread(session->shm_fd, records, sizeof records, (off_t)DV_SHM_KERNEL_OFFSET);
    unsigned read = bytes < 0 ? 0 : (unsigned)((size_t)bytes / sizeof records[0]);
    while (count < read && take(&records[count], &found[count]))
        count++;
    return count;
}

const char *dvd_cut_verdict_word(enum dv_cut_verdict verdict)
{
    static const char *const words[] = {
        [DV_CUT_FREE] = "free", [DV_CUT_CORRECTED] = "corrected", [DV_CUT_WHOLE] = "whole"};
    return words[verdict];
}

const char *dvd_whole_reason_text(enum dv_whole_reason reason)
{
    static const char *const texts[] = {
        [DV_WHOLE_NO_REASON] = "",
        [DV_WHOLE_BINARY] = "its program is a binary",
        [DV_WHOLE_IL] = "it is SPIR-V that uses group ids or sizes of the range",
        [DV_WHOLE_GROUPS_WAIT] = "its work-groups wait for each other",
        [DV_WHOLE_ENQUEUES] = "it enqueues kernels",
        [DV_WHOLE_UNCORRECTED] = "the driver does not build the corrected form",
        [DV_WHOLE_RANGE] = "a range that is uneven, very large, or has an offset",
        [DV_WHOLE_SINGLE_GROUP] = "one work-group",
        [DV_WHOLE_REFUSED] = "the driver refused a part",
    };
    return texts[reason];
}
