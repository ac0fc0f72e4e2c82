/* The rights of root that each process of root's daemon keeps. docs/security.md lists them with their
 * reasons. A user's daemon has none from the beginning. */
#ifndef DVD_SYSTEM_RIGHTS_H
#define DVD_SYSTEM_RIGHTS_H

enum dvd_rights {
    DV_RIGHTS_NONE,     /* the keeper */
    DV_RIGHTS_DAEMON,   /* divvyd, which reads untrusted messages */
    DV_RIGHTS_LAUNCHER, /* the launcher and the zygotes that it starts, which make sandboxes */
};

/* Gives up all other capabilities for good: programs that this process executes never have them either.
 * Returns 0 or a negative errno. */
int dvd_rights_keep(enum dvd_rights rights);

#endif
