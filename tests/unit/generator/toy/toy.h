/* A made-up API for the generator's tests: lamps that hang on wires, and what is sent along them.
 */
#ifndef TOY_H
#define TOY_H

#include <stddef.h>
#include <stdint.h>

#define TOY_CALL
#define TOY_OK 0
#define TOY_BAD_VALUE (-1)
#define TOY_NO_MEMORY (-2)
#define TOY_BAD_WIRE (-3)
#define TOY_BAD_LAMP (-4)
#define TOY_NOT_HERE (-5)
#define TOY_BLINK 100
#define TOY_PAINT 101
#define TOY_DARKEN 102
#define TOY_LAMP_NAME 1
#define TOY_LAMP_WATTS 2
#define TOY_LAMP_HISTORY 3
#define TOY_LAMP_SECRET 4

typedef int32_t toy_status;
typedef struct toy_wire_s *toy_wire;
typedef struct toy_lamp_s *toy_lamp;
typedef struct toy_event_s *toy_event;
typedef uint32_t toy_param;

toy_lamp toyHangLamp(toy_wire wire, uint32_t watts, toy_status *errcode_ret);
toy_status toyRetainLamp(toy_lamp lamp);
toy_status toyReleaseLamp(toy_lamp lamp);
toy_status toyGetLampInfo(toy_lamp lamp, toy_param param, size_t size, void *value,
                          size_t *size_ret);
toy_status toyAskLamp(toy_lamp lamp, toy_lamp neighbour, toy_param param, size_t input_size,
                      const void *input, size_t size, void *value, size_t *size_ret);
toy_status toyEnqueueBlink(toy_wire wire, toy_lamp lamp, uint64_t times, uint32_t dims,
                           const size_t *pattern, const size_t *pause,
                           uint32_t num_events_in_wait_list, const toy_event *event_wait_list,
                           toy_event *event);
toy_status toyEnqueuePaint(toy_wire wire, toy_lamp lamp, const void *colour, size_t colour_size,
                           uint32_t num_events_in_wait_list, const toy_event *event_wait_list,
                           toy_event *event);
toy_status toyEnqueueDarken(toy_wire wire, uint32_t count, const toy_lamp *lamps,
                            uint32_t num_events_in_wait_list, const toy_event *event_wait_list,
                            toy_event *event);
void *toyShareWithSun(toy_wire wire, toy_status *errcode_ret);
void toyForget(toy_lamp lamp);

struct toy_table {
    toy_lamp (*toyHangLamp)(toy_wire, uint32_t, toy_status *);
    toy_status (*toyRetainLamp)(toy_lamp);
    toy_status (*toyReleaseLamp)(toy_lamp);
    toy_status (*toyGetLampInfo)(toy_lamp, toy_param, size_t, void *, size_t *);
    toy_status (*toyAskLamp)(toy_lamp, toy_lamp, toy_param, size_t, const void *, size_t, void *,
                             size_t *);
    toy_status (*toyEnqueueBlink)(toy_wire, toy_lamp, uint64_t, uint32_t, const size_t *,
                                  const size_t *, uint32_t, const toy_event *, toy_event *);
    toy_status (*toyEnqueuePaint)(toy_wire, toy_lamp, const void *, size_t, uint32_t,
                                  const toy_event *, toy_event *);
    toy_status (*toyEnqueueDarken)(toy_wire, uint32_t, const toy_lamp *, uint32_t,
                                   const toy_event *, toy_event *);
    void *(*toyShareWithSun)(toy_wire, toy_status *);
    void (*toyForget)(toy_lamp);
    void *toyOld; /* only its place in the table is declared */
};

#endif
