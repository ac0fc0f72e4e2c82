/* Device memory on the lease channel, for the model checker spin: N workers ("clients") and divvyd,
 * which keeps the ledger of a device with ROOM units of memory. A command of a client needs NEED units
 * there, and fewer than N * NEED fit. The lease itself is checked in lease.pml; here it is only what
 * memory needs of it: a client that holds the device may make others give up memory. README.md says
 * what is left out and what is checked; `run` checks it.
 *
 * Where the C code is found again:
 *   Main        the worker's main thread: make_room_for_others and bring_in in
 *               src/worker/opencl/residency.c, and what gate.c does around them
 *   Vendor      dvk_graph_report, on a thread of the vendor's: it gives the device back
 *   Lease       the lease client's thread: src/lease/memory.c, handle in lease.c, sync.c
 *   take_message, settle, given_back, keeps_no_longer
 *               dvd_room_take, dvd_room_settle, dvd_room_released and forget_refusal in
 *               src/arbiter/ledger/room.c
 *   place_ahead, ask_for_room
 *               the functions of these names there
 *   Timer       dv_policy_recall
 *   Patience    on_patience_ends in src/arbiter/ledger/room.c, and the end of room-patience
 *   start       dvd_lessee_restore in src/arbiter/ledger/restore.c
 *   take_state  take_state in src/arbiter/ledger/lessee.c, dvd_room_sync in room.c there
 *   holds, placed
 *               the state file
 *
 * Switches (-D): N, S, ROOM, NEED, OBJECT, UP, DOWN, IDS, RESTARTS: sizes.
 *   IDLES       programs pause (else: a command always waits at the gate)
 *   AHEAD       clients that wait for the device ask for free room ahead of their turn
 *   COPIES      for one of those idle clients evict: the device copies while it computes
 *   PARTS       clients ask for room object by object, and bring in what has room meanwhile
 *   FREES       programs release their memory objects
 *   SLOPPY      a client begins its next command before it has made the room that was asked for, as
 *               front ends other than the worker may
 *   LATE        divvyd's patience with a client may end although it is about to answer
 *   FREEZES     the last client may freeze; DEATHS: it may die
 *   LIVENESS    for the ltl property: clients take turns, and a turn is long enough for a command;
 *               the Watch process is left out
 *   UNCHECKED   what divvyd believes is not compared with the truth, but only what follows from it
 *   BREAK_...   a deliberate mistake, which a check has to find */

#ifndef N
#define N 2 /* clients */
#endif
#ifndef S
#define S 1 /* slots */
#endif
#ifndef ROOM
#define ROOM 3 /* units of memory that the device has */
#endif
#ifndef NEED
#define NEED 2 /* of these, what a command uses */
#endif
#ifndef OBJECT
#define OBJECT NEED /* units that come and leave together */
#endif
#ifndef UP
#define UP 2 /* messages that fit into a channel to divvyd before the client's send() blocks */
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* how often divvyd dies: 0 or 1 */
#endif
#ifdef AHEAD
#define ANSWERS 3 /* that may be on their way to a client */
#else
#define ANSWERS 1
#endif
#define QUESTIONS (ANSWERS + 1) /* ids of PLACE count 1..QUESTIONS and begin again */
#ifndef DOWN
#define DOWN (4 + ANSWERS + 2 * RESTARTS) /* messages on their way to one client: asserted */
#endif
#ifndef IDS
#define IDS 4 /* ids of EVICT count 1..IDS and begin again */
#endif

mtype = { WANT, RELEASE, PLACE, IN_PLACE, UNPLACE, KEEPS, STATE, GRANT, RECALL, PLACED, NO_ROOM,
          EVICT, ASK };

/* type, id, units, flag. The flag of a RELEASE is DV_LEASE_AGAIN, that of a PLACE FIRST, LINE or
 * EARLY. A STATE has the id of the last question, the room that the client has, and in the flag the
 * rest. */
chan up[N] = [UP] of { mtype, byte, byte, byte };
chan down[N] = [DOWN] of { mtype, byte, byte };

#define FIRST 0 /* may be refused */
#define LINE 1  /* DV_MEMORY_WAITS */
#define EARLY 2 /* DV_MEMORY_AHEAD */

#define next_id(x) ((x) % IDS + 1)
#define least(a, b) ((a) < (b) -> (a) : (b))

/* ---- the clients ---- */

#define IDLE 0
#define WAITING 1
#define GRANTED 2
#define RECALLED 3

byte st[N]; /* of the lease */
#ifdef IDLES
bit work[N]; /* a command waits at the gate */
#define works(i) work[i]
#else
#define works(i) 1
#endif

#define RUNS 1
#define ENDED 2  /* and the main thread does not know */
#define CLOSED 3 /* nor that the device has been given back: DV_GATE_CLOSED */
byte flight[N]; /* a command that is with the vendor */

/* struct device in src/lease/channel.h */
byte known[N];        /* placed: room that it was granted and has not given up */
byte question[N] = 1; /* place_id */
byte told[N];         /* place_asked; 0: nothing, or it is answered */
byte how[N];          /* place_flags of that question */
byte owes[N];         /* evicting */
/* struct dvk_room, from the lease's thread to the main thread */
byte granted[N]; /* granted_in */
byte out[N];     /* evict_in */
byte heard[N];   /* evict_in_id: the newest EVICT */
byte hears[N];   /* its bytes are in `out`, its id is not in `heard` yet; 0: nothing */
bit answered[N], refused[N];
/* the main thread's own */
byte on[N];      /* units of its objects that are on the device */
byte due[N];     /* evict_due */
byte name[N];    /* evict_id: the EVICT that an answer names */
byte back[N];    /* units that have left and are not told yet */
byte kept[N];    /* units that do not leave and are not told yet */
bit taking[N];   /* it has read the id, and not yet the bytes */
bit bringing[N]; /* its objects are wanted, and are not evicted */
bit asked[N];    /* it has asked for room under this grant */
bit tried[N];    /* it has asked ahead of this turn */

#define WELL 0
#define FROZEN 1
#define DEAD 2
byte fate[N];
#define is_frozen(i) (fate[i] == FROZEN)

#define alive(i) (fate[i] == WELL)
#define has(i) (st[i] == GRANTED || st[i] == RECALLED)
#define can_send(i) (len(up[i]) < UP)
/* The main thread is in the middle of make_room_for_others. */
#define between(i) (taking[i] || back[i] > 0 || kept[i] > 0)
/* Room that the main thread knows of and that nothing is in. */
#define spare(i) (known[i] - granted[i] - back[i] - on[i])

/* ---- divvyd ---- */

bit running = 1;
/* in memory */
bit sync[N];  /* unsynced_mask: it was asked what it holds and has not answered */
bit waits[N];
bit recalled[N];
bit brings[N];
byte ask[N], ask_id[N]; /* room that it waits for, and the question's id */
bit in_line[N]; /* that question waits in line */
byte evicting[N];
bit keeps[N];  /* it said that it has nothing to give up */
bit silent[N]; /* it does not answer in time */
byte newest[N]; /* evict_id: the newest EVICT */
bit counts[N];  /* and its answer counts: nothing has happened since that makes it old */
bit joined[N] = 1;
#ifdef LIVENESS
byte last = N - 1; /* whose turn was last */
bit ran[N];        /* under the present grant */
#endif
#ifdef COPIES
byte early = N; /* for whom idle clients evict ahead of its turn; N: for nobody */
byte early_ask, early_id;
#endif
/* in the state file */
bit holds[N];
byte placed[N];

bit quiet; /* no program gives any more commands */
byte restarts = RESTARTS;
bit failed; /* the last client has frozen or died */

/* temporaries of atomic steps, all 0 between them */
byte j, k, who, lacks, coming, id, units, flag;
mtype type;

inline forget()
{
    j = 0; k = 0; who = 0; lacks = 0; coming = 0; id = 0; units = 0; flag = 0; type = 0
}

#if N == 3
#define sum(a) (a[0] + a[1] + a[2])
#define any(p) (p(0) || p(1) || p(2))
#define any_other(a, i) ((a[0] && i != 0) || (a[1] && i != 1) || (a[2] && i != 2))
#else
#define sum(a) (a[0] + a[1])
#define any(p) (p(0) || p(1))
#define any_other(a, i) ((a[0] && i != 0) || (a[1] && i != 1))
#endif

/* ================================ the client ================================ */

inline to_daemon(i, t, x, u, f)
{
    printf("client %d sends %e (id %d, units %d, flag %d)\n", i, t, x, u, f);
    up[i]!t, x, u, f
}

/* The command at the gate has passed it, or has failed. */
inline done_with(i)
{
#ifdef IDLES
    work[i] = 0
#else
    skip
#endif
}

inline want(i)
{
    st[i] = WAITING;
    tried[i] = 0;
    to_daemon(i, WANT, 0, 0, 0)
}

inline give_back(i, again)
{
    to_daemon(i, RELEASE, 0, 0, again);
    tried[i] = 0;
    st[i] = (again -> WAITING : IDLE)
}

/* What was asked for is asked anew under the next grant. */
inline stop_bringing(i)
{
    bringing[i] = 0;
    asked[i] = 0;
    answered[i] = 0;
    refused[i] = 0
}

/* As soon as the end of its command is noticed there is more to evict. The vendor's thread gives the
 * device back before that, and by then the client may have been granted it again. */
#ifdef BREAK_NOTICED
#define is_soon(i) (flight[i] > 0 && !has(i))
#else
#define is_soon(i) (flight[i] == CLOSED)
#endif

/* make_room_for_others: what leaves is decided here, and told in the next steps. */
inline make_room(i)
{
    due[i] = due[i] + out[i];
    out[i] = 0;
    taking[i] = 0;
    if
    :: !has(i) -> stop_bringing(i)
    :: else
    fi;
    if
    :: spare(i) < due[i] && on[i] > 0 && flight[i] == 0 && !bringing[i] ->
        on[i] = on[i] - least(OBJECT, on[i]);
        printf("client %d evicts, %d units are left\n", i, on[i])
    :: else
    fi;
    back[i] = least(spare(i), due[i]);
    due[i] = due[i] - back[i];
    if
    :: due[i] > 0 && (on[i] == 0 || flight[i] > 0 || bringing[i]) ->
        if
#ifndef BREAK_SOON
        :: is_soon(i)
#endif
        :: else ->
            printf("client %d finds nothing to evict for id %d\n", i, name[i]);
            kept[i] = due[i];
            due[i] = 0
        fi
    :: else
    fi
}

/* Whether make_room would do something: not while the end of a command is to be noticed first. */
#define has_to_make_room(i) \
    (out[i] > 0 || (due[i] > 0 && (spare(i) > 0 || !is_soon(i))))

/* When no message names an id of this client any more, ids begin again: fewer states. */
inline tidy(i)
{
    if
    :: owes[i] == 0 && evicting[i] == 0 && out[i] == 0 && due[i] == 0 && kept[i] == 0 && !hears[i] &&
       !taking[i] && !(down[i]??[EVICT, _, _]) && !(up[i]??[KEEPS, _, _, _]) ->
        heard[i] = 0;
        name[i] = 0;
        newest[i] = 0;
        counts[i] = 0
    :: else
    fi;
    if
    :: told[i] == 0 && !asked[i] && ask[i] == 0 && !(down[i]??[PLACED, _, _]) &&
       !(down[i]??[NO_ROOM, _, _]) && !(up[i]??[PLACE, _, _, _]) ->
        question[i] = 1;
        how[i] = 0
    :: else
    fi
}

/* Of what divvyd asked for so much has been answered. */
inline less_owed(i, u)
{
    owes[i] = owes[i] - least(u, owes[i])
}

/* The command fails for want of room. Only a client that does not answer may be the reason. */
inline fail(i)
{
    printf("a command of client %d fails\n", i);
    assert(any(is_frozen));
    done_with(i)
}

inline ask_for(i, f)
{
    answered[i] = 0;
    refused[i] = 0;
    question[i] = question[i] % QUESTIONS + 1;
    told[i] = NEED - on[i] - spare(i);
#ifdef PARTS
    told[i] = (f == FIRST -> least(OBJECT, told[i]) : told[i]);
#endif
    how[i] = f;
    to_daemon(i, PLACE, question[i], told[i], f)
}

/* bring_in, with the device granted, for a command that does not have all that it needs. */
inline bring_in(i)
{
    granted[i] = 0; /* spare() counts it from here on */
    bringing[i] = 1;
#ifdef PARTS
    on[i] = on[i] + least(NEED - on[i], spare(i) / OBJECT * OBJECT);
    assert(sum(on) <= ROOM);
#endif
    if
    :: NEED - on[i] <= spare(i) ->
        on[i] = NEED;
        printf("client %d is in place\n", i);
        assert(sum(on) <= ROOM);
        if
        :: asked[i] -> to_daemon(i, IN_PLACE, 0, 0, 0)
        :: else
        fi;
        told[i] = 0;
        stop_bringing(i)
    :: NEED - on[i] > spare(i) && refused[i] && how[i] == LINE ->
        fail(i);
        to_daemon(i, IN_PLACE, 0, 0, 0);
        told[i] = 0;
        stop_bringing(i)
    :: NEED - on[i] > spare(i) && !(refused[i] && how[i] == LINE) ->
        if
        :: refused[i] || (asked[i] && how[i] == LINE) -> flag = LINE
        :: else -> flag = FIRST /* or what was granted has been given up for others meanwhile */
        fi;
        asked[i] = 1;
        ask_for(i, flag);
        flag = 0
    fi
}

/* dvk_residency_admit: what others were promised leaves first. */
#if defined(BREAK_FIRST) || defined(SLOPPY)
#define may_begin(i) (works(i) && st[i] == GRANTED && flight[i] == 0)
#else
#define may_begin(i) (works(i) && st[i] == GRANTED && flight[i] == 0 && due[i] == 0 && out[i] == 0)
#endif

#define has_to_bring(i) \
    (may_begin(i) && on[i] < NEED && \
     (!asked[i] || answered[i] || NEED - on[i] <= spare(i) + granted[i]))

/* The worker's main thread. */
proctype Main(byte i)
{
    do
#ifdef IDLES
    :: atomic { alive(i) && !between(i) && !work[i] && !quiet && can_send(i) -> /* a command comes */
            work[i] = 1;
            if
            :: flight[i] == 0 && st[i] == IDLE -> want(i)
            :: else
            fi
        }
#else
    :: d_step { alive(i) && st[i] == IDLE && can_send(i) -> want(i) } /* the first comes */
#endif
    /* the id is read before the bytes: it must not be newer than they are */
    :: d_step { alive(i) && !between(i) && has_to_make_room(i) ->
            taking[i] = 1;
            name[i] = (out[i] > 0 -> heard[i] : name[i])
        }
    :: d_step { alive(i) && taking[i] -> make_room(i); tidy(i) }
    :: d_step { alive(i) && back[i] > 0 && can_send(i) ->
            known[i] = known[i] - back[i];
#ifdef BREAK_TWICE
            units = (on[i] == 0 -> back[i] + 1 : back[i]); /* bytes of the object are told once more */
            to_daemon(i, UNPLACE, name[i], units, 0);
            units = 0;
#else
            to_daemon(i, UNPLACE, name[i], back[i], 0);
#endif
            less_owed(i, back[i]);
            back[i] = 0;
            tidy(i)
        }
    :: d_step { alive(i) && !taking[i] && back[i] == 0 && kept[i] > 0 && can_send(i) ->
            to_daemon(i, KEEPS, name[i], kept[i], 0);
            less_owed(i, kept[i]);
            kept[i] = 0;
            tidy(i)
        }
    :: atomic { alive(i) && !between(i) && has_to_bring(i) && can_send(i) ->
            bring_in(i)
        }
#ifdef AHEAD
    :: d_step { alive(i) && !between(i) && works(i) && st[i] == WAITING && flight[i] == 0 &&
                !tried[i] && !bringing[i] && on[i] + spare(i) < NEED && can_send(i) ->
            granted[i] = 0;
            tried[i] = 1;
            if
            :: on[i] + spare(i) < NEED -> ask_for(i, EARLY)
            :: else
            fi
        }
    :: d_step { alive(i) && !between(i) && st[i] == WAITING && flight[i] == 0 && answered[i] &&
                how[i] == EARLY -> /* as much as there is room for */
            granted[i] = 0;
            on[i] = on[i] + least(NEED - on[i], spare(i) / OBJECT * OBJECT);
            assert(sum(on) <= ROOM);
            stop_bringing(i)
        }
#endif
#ifdef FREES
    :: d_step { alive(i) && !between(i) && flight[i] == 0 && !bringing[i] && on[i] > 0 &&
                known[i] - granted[i] > 0 && can_send(i) -> /* dvk_residency_remove */
            printf("client %d releases its objects\n", i);
            on[i] = 0;
            to_daemon(i, UNPLACE, 0, spare(i), 0);
            less_owed(i, spare(i));
            known[i] = granted[i]
        }
#endif
    :: d_step { alive(i) && !between(i) && may_begin(i) && on[i] == NEED -> /* submitted */
            stop_bringing(i);
            done_with(i);
#ifdef LIVENESS
            ran[i] = 1;
#endif
            flight[i] = RUNS
        }
    :: d_step { alive(i) && !between(i) && flight[i] == 0 && st[i] == RECALLED && can_send(i) ->
            stop_bringing(i);
            give_back(i, works(i));
            tidy(i)
        }
    :: atomic { alive(i) && !between(i) && flight[i] >= ENDED && can_send(i) -> /* dvk_graph_reap */
            flight[i] = 0;
            if
            :: has(i) -> give_back(i, works(i))
            :: st[i] == GRANTED
            :: st[i] == IDLE && works(i) -> want(i)
            :: !has(i) && !(st[i] == IDLE && works(i))
            fi
        }
    od
}

/* A command ends on a thread of the vendor's. If no other may follow it gives the device back, before
 * the main thread knows. */
proctype Vendor(byte i)
{
    do
    :: atomic { alive(i) && flight[i] == RUNS && can_send(i) ->
            flight[i] = ENDED;
            printf("a command of client %d ends\n", i);
            if
            :: has(i) && works(i) -> flight[i] = CLOSED; give_back(i, 1)
            :: skip
            fi
        }
    od
}

/* What a STATE says of the lease: 0 nothing, 1 waits, 2 holds, 3 holds and brings memory in. */
#define lease_state(i) (has(i) -> (asked[i] -> 3 : 2) : (st[i] == WAITING -> 1 : 0))

/* One message of divvyd's. */
inline handle(i)
{
    down[i]?type, id, units;
    printf("client %d reads %e (id %d, units %d) in state %d\n", i, type, id, units, st[i]);
    if
    :: type == GRANT -> assert(st[i] == WAITING); st[i] = GRANTED; stop_bringing(i)
    :: type == RECALL && st[i] == GRANTED -> st[i] = RECALLED
    :: type == PLACED ->
#ifdef BREAK_PLACED
        if
        :: id == question[i] -> known[i] = known[i] + units; granted[i] = granted[i] + units
        :: else /* an answer to an old question is ignored, and its room too */
        fi;
#else
#ifdef BREAK_ANSWER
        if
        :: id != question[i] && told[i] > 0 -> units = told[i]; id = question[i]
        :: else
        fi;
#endif
        known[i] = known[i] + units;
        granted[i] = granted[i] + units;
#endif
        if
        :: id == question[i] -> told[i] = 0; answered[i] = 1
        :: else
        fi
    :: type == NO_ROOM ->
        if
#ifdef BREAK_LATE
        :: true ->
#else
        :: id == question[i] ->
#endif
            told[i] = 0;
            refused[i] = 1;
            answered[i] = 1
        :: else
        fi
    :: type == EVICT ->
        owes[i] = owes[i] + units;
        out[i] = out[i] + units;
        hears[i] = id
    :: type == ASK ->
        flag = lease_state(i);
        flag = flag + 4 * how[i] + 16 * told[i] + 64 * owes[i];
        to_daemon(i, STATE, question[i], known[i], flag)
    :: else
    fi
}

/* The lease client's thread. */
proctype Lease(byte i)
{
    do
    :: d_step { alive(i) && !hears[i] && len(down[i]) > 0 && can_send(i) -> handle(i); forget(); tidy(i) }
    :: d_step { alive(i) && hears[i] > 0 -> heard[i] = hears[i]; hears[i] = 0; tidy(i) }
#ifdef IDLES
    :: d_step { alive(i) && !hears[i] && has(i) && !work[i] && flight[i] == 0 && can_send(i) ->
            give_back(i, 0) /* it lingers no longer */
        }
#endif
    od
}

/* ================================ divvyd ================================ */

/* It may die before it sends what it has recorded. */
inline to_client(i, t, x, u)
{
    if
    :: !running
    :: running ->
        printf("divvyd sends %e to client %d (id %d, units %d)\n", t, i, x, u);
        if
        :: fate[i] == DEAD
        :: fate[i] != DEAD ->
            assert(nfull(down[i]));
            down[i]!t, x, u
        fi
    :: running && restarts > 0 ->
        printf("divvyd dies before it sends %e to client %d\n", t, i);
        running = 0;
        restarts--
    fi
}

#ifdef BREAK_HOLDER
#define may_evict(v) (v != k && placed[v] > evicting[v] && !keeps[v] && !silent[v])
#else
#define may_evict(v) (placed[v] > evicting[v] && !keeps[v] && !silent[v] && !holds[v])
#endif

/* What was asked for, and may still come. */
#define comes(v) (silent[v] -> 0 : evicting[v])
#if N == 3
#define on_its_way (comes(0) + comes(1) + comes(2))
#else
#define on_its_way (comes(0) + comes(1))
#endif

/* ask_to_evict */
inline evict_from(v)
{
    units = least(placed[v] - evicting[v], lacks - coming);
    coming = coming + units;
    evicting[v] = evicting[v] + units;
    newest[v] = next_id(newest[v]);
    counts[v] = 1;
    to_client(v, EVICT, newest[v], units)
}

/* Others are asked for what lacks; any victim is as good as another. `coming` says what is on its way
 * afterwards. */
inline ask_for_room()
{
    coming = on_its_way;
    do
    :: running && coming < lacks && may_evict(0) -> evict_from(0)
    :: running && coming < lacks && may_evict(1) -> evict_from(1)
#if N == 3
    :: running && coming < lacks && may_evict(2) -> evict_from(2)
#endif
    :: !running || coming >= lacks || !any(may_evict) -> break
    od
}

inline forget_question(i)
{
    ask[i] = 0;
    ask_id[i] = 0;
    in_line[i] = 0
}

inline keeps_no_longer(i)
{
    silent[i] = 0;
#ifndef BREAK_STAYS
    keeps[i] = 0;
#endif
#ifndef BREAK_FRESH
    counts[i] = 0
#endif
}

/* Records, and then says so. */
inline grant_place(i, x, u)
{
    placed[i] = placed[i] + u;
    assert(sum(placed) <= ROOM);
    to_client(i, PLACED, x, u)
}

#ifdef COPIES
inline forget_early(i)
{
    if
    :: early == i -> early = N; early_ask = 0; early_id = 0
    :: else
    fi
}

/* answer_ahead */
inline answer_early()
{
    who = early;
#ifdef BREAK_EARLY
    lacks = early_ask;
#else
    lacks = least(early_ask, ROOM - sum(placed));
#endif
    id = early_id;
    forget_early(who);
    if
    :: lacks > 0 && sum(ask) == 0 && evicting[who] == 0 -> grant_place(who, id, lacks)
    :: else -> to_client(who, NO_ROOM, id, 0)
    fi;
    who = 0
}

inline settle_early()
{
    if
    :: running && early < N &&
       (on_its_way == 0 || sum(ask) > 0 || ROOM - sum(placed) >= early_ask) -> answer_early()
    :: else
    fi
}
#else
#define forget_early(i) skip
#define settle_early() skip
#endif

/* settle_holders in room.c: answers those that wait for room, as far as there is any. */
inline settle()
{
    k = 0;
    do
    :: k < N && ask[k] > 0 && running ->
        lacks = (sum(placed) + ask[k] > ROOM -> sum(placed) + ask[k] - ROOM : 0);
        if
        :: lacks == 0 ->
            units = ask[k];
            id = ask_id[k];
            forget_question(k);
            grant_place(k, id, units)
        :: lacks > 0 ->
            ask_for_room();
            if
#ifdef BREAK_LINE
            :: running && coming == 0 ->
#else
            :: running && coming == 0 && !in_line[k] ->
#endif
                id = ask_id[k];
                forget_question(k);
                to_client(k, NO_ROOM, id, 0)
            :: else
            fi
        fi;
        k++
    :: k < N && !(ask[k] > 0 && running) -> k++
    :: k >= N -> break
    od;
    k = 0;
    settle_early()
}

inline given_back(i)
{
    holds[i] = 0;
    recalled[i] = 0;
    brings[i] = 0;
    forget_question(i);
    keeps_no_longer(i)
}

#ifdef COPIES
#define is_idle(v) (may_evict(v) && !waits[v])

/* For one whose turn has not come: idle clients evict, unless they do so for another. */
inline place_ahead(i, x, u)
{
    forget_early(i);
    keeps_no_longer(i);
    if
    :: early < N -> to_client(i, NO_ROOM, x, 0)
    :: else ->
        early = i;
        early_ask = u;
        early_id = x;
        lacks = (sum(placed) + u > ROOM -> sum(placed) + u - ROOM : 0);
        coming = (sum(ask) == 0 && evicting[i] == 0 && lacks > 0 -> on_its_way : lacks);
        do
        :: running && coming < lacks && is_idle(0) && i != 0 -> evict_from(0)
        :: running && coming < lacks && is_idle(1) && i != 1 -> evict_from(1)
#if N == 3
        :: running && coming < lacks && is_idle(2) && i != 2 -> evict_from(2)
#endif
        :: else -> break
        od;
        settle_early()
    fi
}
#else
/* For one whose turn has not come: what is free, unless others wait for it. */
inline place_ahead(i, x, u)
{
    keeps_no_longer(i);
    lacks = least(u, ROOM - sum(placed));
    if
    :: lacks > 0 && sum(ask) == 0 && evicting[i] == 0 -> grant_place(i, x, lacks)
    :: else -> to_client(i, NO_ROOM, x, 0)
    fi
}
#endif

/* Only of a holder. */
inline take_question(i, x, u, f)
{
    if
    :: f == EARLY -> place_ahead(i, x, u)
    :: f != EARLY && holds[i] ->
        forget_early(i);
        keeps_no_longer(i);
        brings[i] = 1;
        ask[i] = u;
        ask_id[i] = x;
        in_line[i] = (f == LINE)
    :: else
    fi
}

inline dispatch()
{
    do
    :: running && sum(holds) < S && sum(waits) > 0 ->
#ifdef LIVENESS
        who = (last + 1) % N;
        do
        :: !waits[who] -> who = (who + 1) % N
        :: waits[who] -> break
        od;
        last = who;
        ran[who] = 0;
#else
        if
        :: waits[0] -> who = 0
        :: waits[1] -> who = 1
#if N == 3
        :: waits[2] -> who = 2
#endif
        fi;
#endif
        waits[who] = 0;
        holds[who] = 1;
        to_client(who, GRANT, 0, 0)
    :: !(running && sum(holds) < S && sum(waits) > 0) -> break
    od;
    who = 0
}

inline unplace(i, u)
{
    evicting[i] = evicting[i] - least(u, evicting[i]);
    placed[i] = placed[i] - least(u, placed[i])
}

inline take_message(i)
{
    if
    :: type == WANT -> waits[i] = 1
    :: type == RELEASE ->
        given_back(i);
        waits[i] = flag;
#ifndef BREAK_WAKE
        settle()
#endif
    :: type == PLACE -> take_question(i, id, units, flag); settle()
    :: type == IN_PLACE -> forget_question(i); brings[i] = 0
    :: type == UNPLACE ->
        unplace(i, units);
        keeps[i] = 0;
        silent[i] = 0;
        settle()
    :: type == KEEPS ->
        evicting[i] = evicting[i] - least(units, evicting[i]);
        if
#ifdef BREAK_ID
        :: true -> keeps[i] = 1
#else
        :: id == newest[i] && counts[i] -> keeps[i] = 1
#endif
        :: else
        fi;
#ifndef UNCHECKED
        assert(!keeps[i] || holds[i] || on[i] == 0 || !alive(i)); /* what is believed is true */
#endif
        settle()
    fi;
    dispatch()
}

/* A STATE: the client's own word counts as far as the file agrees. */
inline take_state(i)
{
    sync[i] = 0;
    if
    :: holds[i] && flag % 4 < 2 -> given_back(i)
    :: else
    fi;
    waits[i] = (flag % 4 == 1);
    placed[i] = least(placed[i], units);
    evicting[i] = least(flag / 64, placed[i]);
#ifndef BREAK_SYNC
    if
    :: flag % 4 == 3 || (flag / 16) % 4 > 0 ->
        units = (flag / 16) % 4;
        lacks = (flag / 4) % 4;
        take_question(i, id, units, lacks)
    :: else
    fi;
#endif
    settle();
    dispatch()
}

proctype Reader(byte i)
{
    do
    :: atomic { running && joined[i] && len(up[i]) > 0 ->
            up[i]?type, id, units, flag;
            printf("divvyd reads %e of client %d (id %d, units %d)\n", type, i, id, units);
            if
            :: type == STATE -> take_state(i)
            :: type != STATE && !sync[i] -> take_message(i)
            :: type != STATE && sync[i] /* said to an earlier divvyd */
            :: restarts > 0 -> running = 0; restarts-- /* it dies with the message */
            fi;
            forget();
            tidy(i)
        }
    od
}

/* It waits for room that others have, and none of them can be asked for it now. */
#define is_stuck(i) (ask[i] > 0 && in_line[i] && on_its_way == 0 && !any(may_evict))
#if N == 3
#define another_is_stuck(i) \
    ((is_stuck(0) && i != 0) || (is_stuck(1) && i != 1) || (is_stuck(2) && i != 2))
#else
#define another_is_stuck(i) ((is_stuck(0) && i != 0) || (is_stuck(1) && i != 1))
#endif

/* A turn is over: others wait for the device, or another holder for room. */
#ifdef BREAK_MUTUAL
#define is_in_the_way(i) any_other(waits, i)
#else
#define is_in_the_way(i) (any_other(waits, i) || another_is_stuck(i))
#endif
#ifdef LIVENESS
#define may_recall(i) (holds[i] && !recalled[i] && is_in_the_way(i) && (ran[i] || is_stuck(i)))
#else
#define may_recall(i) (holds[i] && !recalled[i] && is_in_the_way(i))
#endif
proctype Timer()
{
    do
    :: atomic { running && may_recall(0) -> recalled[0] = 1; to_client(0, RECALL, 0, 0) }
    :: atomic { running && may_recall(1) -> recalled[1] = 1; to_client(1, RECALL, 0, 0) }
#if N == 3
    :: atomic { running && may_recall(2) -> recalled[2] = 1; to_client(2, RECALL, 0, 0) }
#endif
    od
}

/* A client has not answered for long. */
#ifdef LATE
#define is_late(i) (evicting[i] > 0 && !silent[i] && fate[i] != DEAD)
#else
#define is_late(i) (evicting[i] > 0 && !silent[i] && fate[i] == FROZEN)
#endif
inline lose_patience(i)
{
    printf("divvyd loses its patience with client %d\n", i);
    silent[i] = 1;
    settle();
    forget()
}
/* There is nothing to hope for, because of a client that does not answer. */
#define is_hopeless(i) (is_stuck(i) && any(is_frozen))
inline refuse(i)
{
    id = ask_id[i];
    forget_question(i);
    to_client(i, NO_ROOM, id, 0);
    forget()
}
proctype Patience()
{
    do
    :: atomic { running && is_late(0) -> lose_patience(0) }
    :: atomic { running && is_late(1) -> lose_patience(1) }
#if N == 3
    :: atomic { running && is_late(2) -> lose_patience(2) }
#endif
    :: atomic { running && is_hopeless(0) -> refuse(0) }
    :: atomic { running && is_hopeless(1) -> refuse(1) }
    od
}

/* ================================ what goes wrong ================================ */

/* The last client freezes or dies. A frozen one that holds the device is ended. */
proctype Fate()
{
#ifdef FREEZES
    if
    :: d_step { fate[N - 1] == WELL -> fate[N - 1] = FROZEN; printf("client %d freezes\n", N - 1) }
    :: d_step { fate[N - 1] == WELL -> fate[N - 1] = DEAD; printf("client %d dies\n", N - 1) }
    fi;
    d_step { fate[N - 1] == FROZEN && holds[N - 1] -> fate[N - 1] = DEAD }
#else
    d_step { fate[N - 1] == WELL -> fate[N - 1] = DEAD; printf("client %d dies\n", N - 1) }
#endif
}

/* dvd_room_part: its memory comes back with its end. */
proctype Reaper()
{
    atomic { running && fate[N - 1] == DEAD && joined[N - 1] ->
        printf("divvyd sees the end of client %d\n", N - 1);
        on[N - 1] = 0;
        joined[N - 1] = 0;
        sync[N - 1] = 0;
        waits[N - 1] = 0;
        given_back(N - 1);
#ifndef BREAK_DEAD
        placed[N - 1] = 0;
#endif
        forget_early(N - 1);
        evicting[N - 1] = 0;
        silent[N - 1] = 0;
        settle();
        dispatch();
        forget()
    }
}

/* divvyd dies, and the next one asks all sessions what they hold. */
inline start()
{
    running = 1;
#ifdef COPIES
    early = N;
    early_ask = 0;
    early_id = 0;
#endif
    k = 0;
    do
    :: k < N ->
        waits[k] = 0;
        recalled[k] = 0;
        brings[k] = 0;
        forget_question(k);
        evicting[k] = 0;
        keeps[k] = 0;
        silent[k] = 0;
        counts[k] = 0;
#ifdef BREAK_LIVES
        newest[k] = 0;
#endif
        sync[k] = joined[k];
        if
        :: joined[k] && fate[k] != DEAD -> assert(nfull(down[k])); down[k]!ASK, 0, 0
        :: else
        fi;
        k++
    :: else -> break
    od;
    forget()
}

proctype Restart()
{
    do
    :: d_step { running && restarts > 0 -> running = 0; restarts--; printf("divvyd dies\n") }
    :: d_step { !running -> printf("divvyd starts\n"); start() }
    od
}

/* ================================ the end ================================ */

#ifdef IDLES
proctype Quiet()
{
    quiet = 1
}

/* Nothing is left to do: both sides agree, and nothing is waited for. */
#define settled(i) \
    (fate[i] != WELL || \
     (st[i] == IDLE && !work[i] && flight[i] == 0 && placed[i] == known[i] && due[i] == 0 && \
      out[i] == 0 && ask[i] == 0 && evicting[i] == 0 && len(up[i]) == 0 && len(down[i]) == 0))
#else
/* There is always work, so there is always something to do. */
#define settled(i) (fate[i] == DEAD)
#endif

proctype Watch()
{
    timeout -> /* no other process can move */
        assert(running && settled(0) && settled(1) && settled(N - 1))
}

init
{
    atomic {
        j = 0;
        do
        :: j < N ->
            run Main(j);
            run Vendor(j);
            run Lease(j);
            run Reader(j);
            j++
        :: else -> break
        od;
        j = 0;
        run Timer();
#if defined(LATE) || defined(FREEZES)
        run Patience();
#endif
#if defined(FREEZES) || defined(DEATHS)
        run Fate();
        run Reaper();
#endif
#if RESTARTS > 0
        run Restart();
#endif
#ifndef LIVENESS
#ifdef IDLES
        run Quiet();
#endif
        run Watch()
#endif
    }
}

#ifdef LIVENESS
/* Commands run again and again: no client waits for room for ever. */
ltl served { [] (fate[0] == WELL -> <> (flight[0] == RUNS)) }
#endif
