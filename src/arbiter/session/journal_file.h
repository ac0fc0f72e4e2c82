/* The files of the journal of used device time. They are bounded: the oldest of them goes. */
#ifndef DVD_SESSION_JOURNAL_FILE_H
#define DVD_SESSION_JOURNAL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct dvd_journal_file {
    int directory_fd; /* -1: there is no journal */
    int fd;           /* of the file that is written; -1: it could not be opened */
    uint64_t bytes;   /* whole lines in it */
    gid_t readers;
    bool fails; /* the last line could not be written, and the log says so */
};

/* Opens the journal in a directory, which is made if need be. Returns 0 or a negative errno: then there is none. */
int dvd_journal_file_open(struct dvd_journal_file *file, const char *directory, gid_t readers);
void dvd_journal_file_close(struct dvd_journal_file *file);
/* Appends a line. Returns false when it is not written. */
bool dvd_journal_file_append(struct dvd_journal_file *file, const char *line, size_t bytes);
/* Members of another group may read the journal. */
void dvd_journal_file_set_readers(struct dvd_journal_file *file, gid_t readers);

#endif
