/* Generated from the API specification by tools/generate.py. Do not edit. */
#ifndef DV_CLIENT_ENTRIES_H
#define DV_CLIENT_ENTRIES_H

#include "toy_wire.h"
#include <toy.h>

/* Written by hand in src/client/toy/. */
toy_lamp DV_ENTRY dvc_toyHangLamp(toy_wire wire, uint32_t watts, toy_status *errcode_ret);
toy_status DV_ENTRY dvc_toyAskLamp(toy_lamp lamp, toy_lamp neighbour, toy_param param, size_t input_size, const void *input, size_t size, void *value, size_t *size_ret);

/* Generated. */
toy_status DV_ENTRY dvc_toyRetainLamp(toy_lamp lamp);
toy_status DV_ENTRY dvc_toyReleaseLamp(toy_lamp lamp);
toy_status DV_ENTRY dvc_toyGetLampInfo(toy_lamp lamp, toy_param param, size_t size, void *value, size_t *size_ret);
toy_status DV_ENTRY dvc_toyEnqueueBlink(toy_wire wire, toy_lamp lamp, uint64_t times, uint32_t dims, const size_t *pattern, const size_t *pause, uint32_t num_events_in_wait_list, const toy_event *event_wait_list, toy_event *event);
toy_status DV_ENTRY dvc_toyEnqueuePaint(toy_wire wire, toy_lamp lamp, const void *colour, size_t colour_size, uint32_t num_events_in_wait_list, const toy_event *event_wait_list, toy_event *event);
toy_status DV_ENTRY dvc_toyEnqueueDarken(toy_wire wire, uint32_t count, const toy_lamp *lamps, uint32_t num_events_in_wait_list, const toy_event *event_wait_list, toy_event *event);

extern const struct toy_table dvc_dispatch;
/* The same, writing the call log. */
extern const struct toy_table dvc_dispatch_logged;

/* The function of that name in the dispatch table, or NULL. */
void *dvc_function_by_name(const char *name);

#endif
