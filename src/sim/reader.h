/* A workload file while it is read. */
#ifndef DV_SIM_READER_H
#define DV_SIM_READER_H

#include "src/base/yaml_complaint.h"
#include "src/sim/workload.h"

#define DV_SIM_MAX_TEXT 64

/* The file, and where the complaint goes. */
struct dv_sim_reader {
    const char *path;
    char *data;
    struct dv_yaml_complaint complaint;
    char *error;
    size_t error_bytes;
};

/* Puts "file:line: what is wrong" where the caller wants it. Returns -EINVAL. */
int __attribute__((format(printf, 3, 4)))
dv_sim_complain(struct dv_sim_reader *reader, int line, const char *format, ...);

/* check.c: turns the texts of the file into numbers, and checks them. Returns 0 or -EINVAL. */
int dv_sim_check(struct dv_sim_reader *reader, struct dv_workload *workload);

#endif
