/* Each kind of number has a type of its own, so that the compiler refuses one kind in place of
 * another. */
#ifndef DVD_IDS_H
#define DVD_IDS_H

#include <stdint.h>

struct dvd_session_id { /* never reused, not even by a later daemon */
    uint64_t value;
};
#define DVD_SESSION_ID(value_) ((struct dvd_session_id){.value = (value_)})

/* Two numbers of one device. */
struct dvd_device_id { /* divvyd's own, as `divvy devices` shows it */
    uint8_t number;
};
struct dvd_list_index { /* in a session's list of devices, as its messages have it */
    uint32_t at;
};
#define DVD_LIST_INDEX(at_) ((struct dvd_list_index){.at = (at_)})

#endif
