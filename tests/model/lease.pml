/* The lease protocol between workers and divvyd, for the model checker spin: N workers ("clients"),
 * one device with S slots. Every step that the C code makes under one lock, or in one turn of its
 * event loop, is one atomic step here; everything else may interleave. README.md says what is left
 * out and what is checked; `run` checks it.
 *
 * Where the C code is found again:
 *   Front       the worker's main thread: serve() in src/worker/core/session.c, and gate.c there
 *   Vendor      dvk_graph_report in src/worker/core/graph.c, on a thread of the vendor's
 *   Lease       the lease client's thread: src/lease/lease.c
 *   give_back, want, drained, yield, handle, keep_time
 *               the functions of these names (dv_lease_...) in src/lease/lease.c
 *   Reader      hear_channel in src/arbiter/session/channels.c
 *   take_message, part
 *               take_lease_message and dvd_lessee_part in src/arbiter/ledger/lessee.c
 *   dispatch    dvd_device_dispatch in src/arbiter/ledger/device.c
 *   choose, Timer
 *               dv_policy_next and dv_policy_recall in src/policy/policy.c
 *   Reaper      on_worker_gone in src/arbiter/session/end.c: the pidfd
 *   answer      dv_sync_handle in src/lease/sync.c
 *   start       dvd_lessee_restore in src/arbiter/ledger/restore.c, dvd_lessee_ask_state in lessee.c there
 *   take_state  take_state in src/arbiter/ledger/lessee.c
 *   joined, recorded, granted
 *               divvyd's state file: src/wire/restart/state.h
 *   up, down    divvyd's end is also the keeper's: src/keeper/keeper.c
 *
 * Switches (-D): N, S, FLIGHT, CAP, RESERVE, SERIALS, FAILURES, RESTARTS: sizes.
 *   TURNS       tenants take turns (else: any waiting one is chosen, which stands for every policy)
 *   FLAGS       the flag that wakes the worker's main thread is modelled (else: it wakes when
 *               there is something to do for it)
 *   CLOSING     commands end on the vendor's thread, which gives back when no other may follow
 *   DEATHS      nothing but death happens to a client
 *   CANCELS     commands may fail while they wait at the gate
 *   SLOPPY      a client answers recalls of the past
 *   LIVENESS    for the ltl properties: the Watch process, which asserts, is left out
 *   BREAK_...   a deliberate mistake, which a check has to find */

#ifndef N
#define N 3 /* clients */
#endif
#ifndef S
#define S 1 /* slots */
#endif
#ifndef FLIGHT
#define FLIGHT 1 /* commands that may be with the vendor at once */
#endif
#ifndef CAP
#define CAP 2 /* messages that fit into a channel to divvyd before the client's send() blocks */
#endif
#ifndef RESERVE
#define RESERVE 0 /* of these, so many are left for the lease client's thread */
#endif
#ifndef SERIALS
#define SERIALS 1 /* serials count 1..SERIALS and begin again; see README.md */
#endif
#ifndef FAILURES
#define FAILURES 1 /* how many things go wrong with a client */
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* how often divvyd dies */
#endif

/* No more messages than this are ever on their way to one client: asserted. To one that does not
 * read, a divvyd that is new there sends ASK and RECALL, and nothing more. */
#ifndef DOWN_CAP
#define DOWN_CAP (3 + 2 * RESTARTS)
#endif

mtype = { WANT, CANCEL, RELEASE, STATE, GRANT, RECALL, ASK };

#define WAITS 255 /* in a STATE, in place of a serial */

/* type, serial, flag. The flag is DV_LEASE_AGAIN of a RELEASE; of ASK and STATE it is the id. The
 * serial of a STATE says "I hold this grant", WAITS "I wait", and 0 neither. A slice may be over at
 * any moment after its grant, so its length is not sent, nor are EXTEND and DV_LEASE_CONTENDED. */
chan up[N] = [CAP] of { mtype, byte, byte };
chan down[N] = [DOWN_CAP] of { mtype, byte, byte };

/* ---- the clients: struct device in src/lease/channel.h, struct dvk_gate in the worker ---- */

#define IDLE 0
#define WAITING 1
#define GRANTED 2
#define RECALLED 3

byte st[N];       /* enum state */
byte serial[N];   /* of the present or last grant */
bit idle[N];      /* idle_since != 0; then wanted is false */
bit work[N];      /* a ready command waits at the gate */
byte flight[N];   /* gate->flight.count */
byte ended[N];    /* of these, reported by the vendor's thread; the main thread does not know yet */
byte closing[N];  /* gate->flight.closing: no other command may follow the one submitted last; or CLOSED */
bit woken[N];     /* runtime->gates_changed */
bit linked[N] = 1; /* it has its channel; that divvyd lives is another matter */

#define CLOSED 2 /* DV_GATE_CLOSED: that one has ended, and its end is not noticed yet */
#define PAUSES 3 /* like 1, but no command waits: !gate->closes_with_more */

/* How it goes with a client. */
#define WELL 0
#define BUSY 1   /* its main thread never comes back from a vendor call: a recall is not obeyed */
#define FROZEN 2 /* none of its threads runs */
#define HUNGUP 3 /* it has lost its channel for good, and goes on with what it holds */
#define LIAR 4   /* asked by a new divvyd it claims a grant that it does not hold */
#define DEAD 5

byte fate[N];

#define main_runs(i) (fate[i] == WELL || fate[i] == HUNGUP || fate[i] == LIAR)
#define lease_runs(i) (main_runs(i) || fate[i] == BUSY)
#define is_stuck(i) (fate[i] != WELL && fate[i] != DEAD)
#define has(i) (st[i] == GRANTED || st[i] == RECALLED) /* dv_lease_held */
/* send() to divvyd would not block */
#define room(i) (!linked[i] || len(up[i]) < CAP)
#define main_room(i) (!linked[i] || len(up[i]) < CAP - RESERVE)

/* Who uses the device or may begin to at any moment. The dead do not: what they had submitted ends
 * with their process. */
#ifdef BREAK_STOPPED
#define uses(i) (fate[i] != DEAD && fate[i] != FROZEN && (has(i) || flight[i] > ended[i]))
#else
#define uses(i) (fate[i] != DEAD && (has(i) || flight[i] > ended[i]))
#endif

/* ---- divvyd ---- */

bit running = 1;
/* in memory: struct dvd_lease, struct dv_policy_session */
bit asked[N]; /* unsynced_mask: it was asked what it holds, and has not answered */
bit waits[N];
bit holds[N];
bit recalled[N];
byte last = N - 1; /* whose turn was last */
byte overtaken;    /* how often others were granted while client 0 waited */
/* in the state file, which outlives divvyd */
bit joined[N] = 1;   /* its session: its pidfd is watched */
byte granted[N] = 1; /* lease->serial; the device's counter is in the file */
byte recorded[N];    /* the grant that it holds; 0: none */

bit quiet; /* no program gives any more commands */
byte failures = FAILURES;
byte restarts = RESTARTS; /* how often divvyd will die; so it also tells its lives apart */

/* temporaries of atomic steps, all 0 between them */
byte j, k, who, number, flag;
mtype type;

inline forget()
{
    j = 0;
    k = 0;
    who = 0;
    number = 0;
    flag = 0;
    type = 0
}

#if N == 3
#define any(p) (p(0) || p(1) || p(2))
#define count(p) (p(0) + p(1) + p(2))
#else
#define any(p) (p(0) || p(1))
#define count(p) (p(0) + p(1))
#endif
#define waits_(i) waits[i]
#define holds_(i) holds[i]
#define others_wait(i) \
    ((waits[0] && i != 0) || (waits[1] && i != 1) || (waits[N - 1] && i != N - 1))

/* Any client for which p is true; there is one. */
#define pick(p) \
    if \
    :: p(0) -> who = 0 \
    :: p(1) -> who = 1 \
    :: N == 3 && p((N - 1)) -> who = N - 1 \
    fi

/* ================================ the client ================================ */

inline to_daemon(i, t, s, f)
{
    if
    :: linked[i] ->
        printf("client %d sends %e (serial %d, flag %d)\n", i, t, s, f);
        up[i]!t, s, f
    :: else -> /* its channel is gone: nobody to tell */
        printf("client %d cannot send %e\n", i, t)
    fi
}

/* again: d->wanted, which every caller has just set or which idle_since implies */
inline give_back(i, again)
{
    to_daemon(i, RELEASE, serial[i], again);
    idle[i] = 0;
    serial[i] = 0; /* not looked at before the next grant: fewer states */
    st[i] = (again -> WAITING : IDLE)
}

inline want(i)
{
    idle[i] = 0;
    if
    :: st[i] == IDLE ->
        st[i] = WAITING;
        to_daemon(i, WANT, 0, 0)
    :: else
    fi
}

/* Gives up waiting: the CANCEL of the wire format. */
inline cancel(i)
{
    st[i] = IDLE;
    to_daemon(i, CANCEL, 0, 0)
}

/* A slice may be over at any moment: then, or when recalled, the lease is given back. */
inline drained(i, more)
{
    if
    :: has(i) -> give_back(i, more)
    :: st[i] == GRANTED && !more -> idle[i] = 1
    :: st[i] == GRANTED && more
    :: !has(i)
    fi
}

inline wake_main(i)
{
#ifdef FLAGS
    woken[i] = 1
#else
    skip
#endif
}

/* What comes next is longer than what is left of the slice. */
inline yield(i)
{
    if
    :: has(i) -> give_back(i, 1)
    :: else
    fi
}

/* What it holds and waits for, in a STATE. */
#define described(i) (has(i) -> serial[i] : (st[i] == WAITING -> WAITS : 0))

/* A new divvyd asks. Everything that was said was said under the lock, and so is this: it is what a
 * divvyd that had heard all of it would know. */
inline answer(i, id)
{
    number = described(i);
    to_daemon(i, STATE, number, id)
}

/* One message of divvyd's. The callbacks granted and recalled only set the flag that wakes the main
 * thread. */
inline handle(i)
{
    down[i]?type, number, flag;
    printf("client %d reads %e (serial %d) in state %d\n", i, type, number, st[i]);
    if
    :: type == GRANT && st[i] == WAITING ->
        serial[i] = number;
#ifdef CLOSING
        idle[i] = !work[i] && flight[i] == 0; /* given back on the vendor's thread, then no work */
#else
        idle[i] = 0;
#endif
        st[i] = GRANTED;
        wake_main(i);
        assert(count(uses) <= S)
    :: type == GRANT && st[i] == IDLE -> /* crossed our CANCEL */
#ifndef BREAK_CROSSED
        serial[i] = number;
        give_back(i, 0)
#endif
    :: type == RECALL && st[i] == GRANTED && number == serial[i] ->
        st[i] = RECALLED;
        if
        :: idle[i] -> give_back(i, 0)
        :: else ->
#ifndef BREAK_RECALL
            wake_main(i)
#endif
        fi
#ifdef SLOPPY
    :: type == RECALL && !has(i) -> to_daemon(i, RELEASE, number, (st[i] == WAITING))
#endif
    :: type == ASK -> answer(i, flag)
    :: else
    fi
}

#define is_asked(i) (down[i]?[ASK, 0, _])

/* It could claim any serial: one that the state file may have for it, or one that it has not. */
inline lie(i)
{
    down[i]?type, number, flag;
    printf("client %d lies in state %d\n", i, st[i]);
    if
    :: to_daemon(i, STATE, 1, flag)
    :: SERIALS > 1 -> to_daemon(i, STATE, SERIALS, flag)
    fi
}

#ifdef BREAK_UNLOCKED
#define may_handle(i) (lease_runs(i) && len(down[i]) > 0 && !is_asked(i) && room(i))
#else
#define may_handle(i) (lease_runs(i) && len(down[i]) > 0 && room(i))
#endif

/* The lease client's thread: serve() in src/lease/lease.c. */
proctype Lease(byte i)
{
#ifdef BREAK_UNLOCKED
    byte seen, id;
#endif

    do
    :: d_step { may_handle(i) -> handle(i); forget() }
    :: d_step { lease_runs(i) && st[i] == GRANTED && idle[i] && room(i) -> /* keep_time */
            give_back(i, 0)
        }
#if RESTARTS > 0
    :: atomic { fate[i] == LIAR && !has(i) && is_asked(i) && room(i) ->
            lie(i);
            d_step { forget() }
        }
#endif
#ifdef BREAK_UNLOCKED
    /* looks, and only then takes the lock to send */
    :: d_step { lease_runs(i) && is_asked(i) ->
            down[i]?ASK, _, id;
            seen = described(i);
            printf("client %d has read ASK in state %d\n", i, st[i])
        };
        d_step { lease_runs(i) && room(i) -> to_daemon(i, STATE, seen, id); seen = 0; id = 0 }
#endif
#ifdef BREAK_ALONE
    /* go_on_alone: all that divvyd had sent was read, then the end of the channel */
    :: atomic { lease_runs(i) && !linked[i] && empty(down[i]) && !has(i) ->
            printf("client %d goes on alone\n", i);
            st[i] = GRANTED;
            serial[i] = 1;
            wake_main(i);
            assert(count(uses) <= S)
        }
#endif
    od
}

/* Work waits and nothing is in flight: want() was called for it, so the lease's thread cannot give
 * back by itself, and a grant or a recall will wake the main thread. */
#define will_move(i) (flight[i] > 0 || (st[i] != IDLE && !idle[i]))

/* The worker's main thread. Commands come from the program, wait at the gate, go to the vendor and
 * end. What only this thread sees is one step with what comes before; what it reads without the
 * lock (dv_lease_end_ns in fits, dv_lease_held) is a step of its own. */
proctype Front(byte i)
{
    bit serving; /* in dvk_gates_serve; otherwise in dvk_graph_add, with a new command */

rest:
    if
    :: atomic { main_runs(i) && !work[i] && !quiet && main_room(i) -> /* a command comes */
            work[i] = 1;
#ifndef BREAK_ADMIT
            if
            :: flight[i] == 0 -> want(i) /* it is not idle any more */
            :: else
            fi
#endif
        }
#ifdef CLOSING
    :: atomic { main_runs(i) && !work[i] && flight[i] > ended[i] && closing[i] == 0 ->
            closing[i] = PAUSES; /* dvk_gates_before_sleep: mostly nothing follows at once */
            goto rest
        }
    :: atomic { main_runs(i) && ended[i] > 0 && main_room(i) -> /* dvk_graph_reap */
            flight[i] = flight[i] - ended[i];
            ended[i] = 0;
            if
            :: flight[i] == 0 -> closing[i] = 0; drained(i, work[i])
            :: else
            fi;
            serving = 1
        }
#else
    :: atomic { main_runs(i) && flight[i] > 0 && main_room(i) -> /* leave_gate, dvk_gate_drained */
            flight[i]--;
            printf("a command of client %d ends\n", i);
            if
            :: flight[i] == 0 -> drained(i, work[i])
            :: else
            fi;
            serving = 1
        }
#endif
#ifdef FLAGS
    :: atomic { main_runs(i) && woken[i] ->
            woken[i] = 0;
            serving = 1
        }
#else
    :: atomic { main_runs(i) && flight[i] == 0 &&
                (st[i] == RECALLED || (work[i] && st[i] == GRANTED)) ->
            serving = 1
        }
#endif
#if FLIGHT > 1
    :: atomic { main_runs(i) && work[i] && flight[i] > 0 && st[i] == GRANTED && !closing[i] ->
            serving = 1 /* gate->look_ns */
        }
#endif
#ifdef CANCELS
    :: atomic { main_runs(i) && work[i] && st[i] == WAITING && main_room(i) -> /* it fails */
            work[i] = 0;
            if
            :: skip /* and nobody says so */
            :: cancel(i)
            fi;
            goto rest
        }
#endif
    fi;

    /* dvk_gate_admit; in dvk_gates_serve it is called only if a command waits */
#ifdef CLOSING
    atomic { main_runs(i) && main_room(i) ->
        if
        :: work[i] && flight[i] == 0 -> want(i)
        :: work[i] && (closing[i] == 1 || closing[i] == PAUSES) ->
            closing[i] = 0 /* dvk_gate_reopen: another may follow */
        :: else
        fi
    };
#endif
    if
    :: atomic { main_runs(i) && work[i] && st[i] == GRANTED && flight[i] < FLIGHT &&
                closing[i] == 0 ->
#ifndef BREAK_ADMIT
            assert(will_move(i));
#endif
            serving = 0
        }
    :: atomic { main_runs(i) && work[i] && flight[i] == 0 && has(i) && main_room(i) ->
            give_back(i, 1); /* does not fit: dv_lease_yield */
            goto closing_
        }
    :: atomic { main_runs(i) && (!work[i] || flight[i] > 0 || !has(i)) && main_room(i) ->
            if
            :: work[i] ->
#ifdef BREAK_ADMIT
                want(i);
#endif
                assert(will_move(i));
#ifdef CLOSING
                if
                :: flight[i] > 0 && closing[i] == 0 -> closing[i] = 1 /* dvk_gate_close */
                :: else
                fi
#endif
            :: else
            fi;
            if
            :: serving -> goto closing_
            :: else -> goto rest
            fi
        }
    fi;
#ifdef BREAK_ADMIT
    atomic {
        main_runs(i) && main_room(i);
        if
        :: flight[i] == 0 -> want(i)
        :: else
        fi
    };
#endif
    atomic { /* submit() in src/worker/core/graph.c */
        main_runs(i);
        work[i] = 0;
        flight[i]++;
        printf("client %d submits a command in state %d\n", i, st[i]);
        assert(count(uses) <= S);
        assert(has(i)); /* nothing is submitted without a lease */
        goto rest
    };

closing_: /* the end of dvk_gates_serve: what is over or recalled, and not used, is returned */
    atomic {
        main_runs(i) && main_room(i);
        if
        :: serving && flight[i] == 0 && has(i) -> give_back(i, work[i]) /* dv_lease_drained */
        :: !serving || flight[i] > 0 || st[i] != RECALLED
#ifdef CLOSING
        :: serving && work[i] && flight[i] > 0 && has(i) && closing[i] == 0 ->
            closing[i] = 1 /* close_gate */
#endif
        fi;
        serving = 0;
        goto rest
    }
}

/* The vendor's thread: a command has ended. If no other may follow it the lease is given back at
 * once, although the main thread still counts it as in flight. The one word that both threads
 * exchange decides which of them was first. */
proctype Vendor(byte i)
{
    bit more; /* commands wait that may not follow */

running_:
    do
    :: atomic { main_runs(i) && flight[i] > ended[i] ->
            printf("a command of client %d ends\n", i);
            if
            :: (closing[i] == 1 || closing[i] == PAUSES) && flight[i] == ended[i] + 1 ->
                more = closing[i] == 1;
#ifndef BREAK_CLOSED
                closing[i] = CLOSED;
#endif
                goto closed
            :: else
            fi;
            ended[i]++
        }
    od;
closed: /* dvk_gate_closed */
    atomic {
        main_runs(i) && main_room(i);
        if
        :: more -> yield(i)
        :: else -> drained(i, 0)
        fi;
        ended[i]++;
        goto running_
    }
}

/* ================================ divvyd ================================ */

/* dvd_lease_send: never blocks, and what the client cannot be told is lost. */
inline to_client(i, t, s, f)
{
    if
    :: linked[i] && fate[i] != DEAD ->
        printf("divvyd sends %e (serial %d, flag %d) to client %d\n", t, s, f, i);
        assert(nfull(down[i])); /* MSG_DONTWAIT loses nothing */
        down[i]!t, s, f
    :: else -> printf("divvyd cannot send %e to client %d\n", t, i)
    fi
}

/* divvyd dies. The keeper has every channel: what it had sent will be read, and what was sent to it
 * waits for the next one. */
inline crash()
{
    printf("divvyd dies\n");
    running = 0;
    restarts--;
    k = 0;
    do
    :: k < N ->
        asked[k] = 0;
        waits[k] = 0;
        holds[k] = 0;
        recalled[k] = 0;
        k++
    :: else -> break
    od;
    last = N - 1;
    overtaken = 0
}

inline may_crash()
{
    if
    :: skip
#if RESTARTS > 0
    :: restarts > 0 && running -> crash()
#endif
    fi
}

/* It is started again: who is recorded as a holder holds, and everybody is asked. Nobody waits
 * before it has said so, so nothing is granted meanwhile. It may die before it has asked all. */
inline start()
{
    printf("divvyd starts\n");
    running = 1;
    k = 0;
    do
    :: running && k < N ->
        may_crash();
        if
        :: running && joined[k] ->
#ifndef BREAK_RESTART
            if
            :: recorded[k] != 0 ->
                holds[k] = 1;
                granted[k] = recorded[k];
                assert(count(holds_) <= S)
            :: else
            fi;
#endif
#ifdef BREAK_FORGET
            recorded[k] = 0; /* a new file, which lists the holders that have answered */
#endif
            asked[k] = 1;
            to_client(k, ASK, 0, restarts)
        :: else
        fi;
        k++
    :: else -> break
    od
}

/* Whose turn it is; somebody waits. */
inline choose()
{
#ifdef TURNS
    j = last;
    do
    :: j = (j + 1) % N;
        if
        :: waits[j] -> break
        :: else
        fi
    od
#else
    if
    :: waits[0] -> j = 0
    :: waits[1] -> j = 1
    :: N == 3 && waits[N - 1] -> j = N - 1
    fi
#endif
}

inline keep_turns()
{
#ifdef TURNS
    last = j;
    if
    :: j != 0 && waits[0] ->
#ifndef LIVENESS
        overtaken++;
        assert(overtaken <= N - 1) /* who waits is served before anybody else is twice */
#endif
    :: else -> overtaken = 0
    fi
#else
    skip
#endif
}

#define may_grant (running && any(waits_) && count(holds_) < S)

inline dispatch()
{
    do
    :: may_grant ->
        choose();
        keep_turns();
        waits[j] = 0;
        holds[j] = 1;
        recalled[j] = 0;
        granted[j] = granted[j] % SERIALS + 1;
        assert(count(holds_) <= S);
#ifdef BREAK_RECORD
        to_client(j, GRANT, granted[j], 0);
        may_crash();
        if
        :: running -> recorded[j] = granted[j]
        :: else
        fi
#else
        recorded[j] = granted[j]; /* in the file before the client can know */
        may_crash();
        if
        :: running -> to_client(j, GRANT, granted[j], 0)
        :: else
        fi
#endif
    :: else -> break
    od
}

inline policy_wait(i)
{
    if
    :: !waits[i] && !holds[i] -> waits[i] = 1
    :: else
    fi
}

inline policy_release(i)
{
    holds[i] = 0;
    recalled[i] = 0;
    recorded[i] = 0;
    may_crash()
}

/* Its own word on what it holds and waits for, as far as the state file agrees. */
inline take_state(i)
{
    asked[i] = 0;
#ifdef BREAK_RESTART
    if
    :: recorded[i] != 0 && number == recorded[i] ->
        holds[i] = 1;
        granted[i] = number;
        assert(count(holds_) <= S)
    :: else -> recorded[i] = 0
    fi;
#endif
    if
    :: holds[i] && number != granted[i] -> /* it never heard of it, or has given it back */
        policy_release(i)
#ifdef BREAK_FORGET
    :: holds[i] && number == granted[i] -> recorded[i] = number
#endif
    :: else
    fi;
    if
#ifndef BREAK_LINE
    :: running && number == WAITS -> policy_wait(i)
#endif
    :: running && number != WAITS && number != 0 && !holds[i] ->
        assert(fate[i] == LIAR || fate[i] == DEAD); /* who is honest loses nothing */
#ifdef BREAK_CLAIM
        holds[i] = 1;
        granted[i] = number;
        recorded[i] = number;
        assert(count(holds_) <= S)
#else
        to_client(i, RECALL, number, 0)
#endif
    :: else
    fi
}

/* Whether a message is for this divvyd: until the answer to its own question has come, everything
 * was said to one before it. */
#ifdef BREAK_HEARD
#define counts(i) (type != STATE || (asked[i] && flag == restarts))
#else
#ifdef BREAK_STALE
#define counts(i) (type == STATE -> asked[i] : !asked[i])
#else
#define counts(i) (type == STATE -> (asked[i] && flag == restarts) : !asked[i])
#endif
#endif

inline take_message(i)
{
    up[i]?type, number, flag;
    printf("divvyd reads %e (serial %d, flag %d) of client %d\n", type, number, flag, i);
    may_crash(); /* then nobody has acted on it */
    if
    :: !running || !counts(i)
    :: running && counts(i) && type == WANT -> policy_wait(i)
    :: running && counts(i) && type == CANCEL -> waits[i] = 0
    :: running && counts(i) && type == RELEASE ->
        if
#ifdef BREAK_SERIAL
        :: holds[i] ->
#else
        :: holds[i] && number == granted[i] ->
#endif
#ifdef BREAK_WAKE
            if
            :: flag -> policy_wait(i)
            :: else
            fi;
            policy_release(i)
#else
            policy_release(i);
            if
            :: running && flag -> policy_wait(i)
            :: else
            fi;
#ifdef BREAK_FAIR
            if
            :: waits[i] -> last = (i + N - 1) % N /* the one who gave back goes first */
            :: else
            fi
#endif
#endif
        :: else -> /* a serial of the past; that it wants another grant still counts */
            if
            :: flag -> policy_wait(i)
            :: else
            fi
        fi
    :: running && counts(i) && type == STATE -> take_state(i)
    fi;
    dispatch()
}

/* dvd_lessee_part: its process has ended. */
inline part(i)
{
    printf("divvyd learns that client %d has ended\n", i);
    asked[i] = 0;
    waits[i] = 0;
    do :: up[i]?_, _, _ :: empty(up[i]) -> break od;
    if
#ifndef BREAK_DEAD
    :: holds[i] -> policy_release(i)
#endif
    :: else
    fi;
    if
    :: running -> joined[i] = 0
    :: else /* the next one will learn it again */
    fi;
    dispatch()
}

/* on_message, one for each client so that none is neglected for ever. */
proctype Reader(byte i)
{
    do
    :: atomic { running && len(up[i]) > 0 -> take_message(i); d_step { forget() } }
    od
}

#define may_recall(i) (holds[i] && !recalled[i])

/* on_time: a turn is over and somebody waits. Any time may have passed. */
proctype Timer()
{
    do
    :: atomic {
            running && any(waits_) && count(holds_) == S && any(may_recall) ->
            pick(may_recall);
#ifndef BREAK_NAG
            recalled[who] = 1; /* once */
#endif
            to_client(who, RECALL, granted[who], 0);
            d_step { forget() }
        }
    od
}

#ifdef BREAK_HANGUP
#define is_reapable(i) (joined[i] && (fate[i] == DEAD || (fate[i] == HUNGUP && len(up[i]) == 0)))
#else
#define is_reapable(i) (joined[i] && fate[i] == DEAD)
#endif

proctype Reaper()
{
    do
    :: atomic { running && any(is_reapable) -> pick(is_reapable); part(who); d_step { forget() } }
    od
}

/* The deadline: who was recalled and does not answer is ended, but only while somebody waits. */
#define is_overdue(i) (is_stuck(i) && others_wait(i) && holds[i] && recalled[i])

inline kill(i)
{
    printf("client %d dies\n", i);
    fate[i] = DEAD;
    st[i] = IDLE; /* never looked at again: fewer states */
    flight[i] = 0;
    ended[i] = 0;
    closing[i] = 0;
    work[i] = 0;
    woken[i] = 0;
    idle[i] = 0;
    serial[i] = 0;
    do :: down[i]?_, _, _ :: empty(down[i]) -> break od
}

#ifdef BREAK_STOPPED
/* Its process is stopped: the device goes to the next; later the process goes on. */
proctype Stopped()
{
    do
    :: atomic { running && is_overdue(N - 1) && fate[N - 1] == FROZEN && holds[N - 1] ->
            printf("divvyd takes the device from client %d\n", N - 1);
            policy_release(N - 1);
            granted[N - 1] = 0;
            dispatch();
            d_step { forget() }
        }
    :: atomic { fate[N - 1] == FROZEN ->
            printf("client %d goes on\n", N - 1);
            fate[N - 1] = WELL
        }
    od
}
#endif

proctype Deadline()
{
    do
    :: atomic { running && any(is_overdue) -> pick(is_overdue); kill(who); d_step { forget() } }
    od
}

/* ================================ what goes wrong ================================ */

inline lose_channel(i)
{
    printf("client %d loses its channel\n", i);
    linked[i] = 0;
    do :: down[i]?_, _, _ :: empty(down[i]) -> break od
}

inline misfortune(i)
{
    if
    :: kill(i)
#ifndef DEATHS
    :: fate[i] = FROZEN; printf("client %d freezes\n", i)
    :: fate[i] = BUSY; printf("client %d is stuck in a vendor call\n", i)
    :: fate[i] = HUNGUP; lose_channel(i)
#if RESTARTS > 0
    :: fate[i] = LIAR; printf("client %d will lie\n", i)
#endif
#endif
    fi
}

/* At any moment. Clients differ only in their number: let it be the last. What comes after another
 * misfortune is death. */
proctype Fate()
{
    do
    :: atomic { failures > 0 && fate[N - 1] == WELL -> failures--; misfortune(N - 1) }
    :: atomic { failures > 0 && is_stuck(N - 1) -> failures--; kill(N - 1) }
    od
}

/* At any moment the programs are through with what they have to do. */
proctype Quiet()
{
    do
    :: atomic { !quiet -> quiet = 1 }
    od
}

/* divvyd dies at any moment, and is always started again. */
proctype Restart()
{
    do
    :: atomic { running && restarts > 0 -> crash(); d_step { forget() } }
    :: atomic { !running -> start(); d_step { forget() } }
#ifdef BREAK_ALONE
    /* nobody starts it for too long: the keeper's patience ends, and with it every channel */
    :: d_step { !running && linked[0] ->
            printf("the keeper closes the channels\n");
            linked[0] = 0;
            linked[1] = 0;
            linked[N - 1] = 0
        }
#endif
    od
}

/* When nothing moves any more, both sides agree and nobody waits. */
#define settled(i) \
    (fate[i] == DEAD -> (!holds[i] && !waits[i] && !asked[i] && recorded[i] == 0) : \
    (fate[i] == WELL -> (!work[i] && flight[i] == 0 && st[i] != WAITING && !waits[i] && \
                         !asked[i] && holds[i] == has(i) && \
                         (!holds[i] || (granted[i] == serial[i] && recorded[i] == serial[i])) && \
                         (holds[i] || recorded[i] == 0) && \
                         len(up[i]) == 0 && len(down[i]) == 0 && linked[i]) : \
    1))

proctype Watch()
{
    timeout -> /* no other process can move */
        assert(running);
        assert(settled(0));
        assert(settled(1));
        assert(settled(N - 1))
}

init
{
    atomic {
        j = 0;
        do
        :: j < N ->
            run Front(j);
            run Lease(j);
            run Reader(j);
#ifdef CLOSING
            run Vendor(j);
#endif
            j++
        :: else -> break
        od;
        run Timer();
        run Reaper();
#ifndef BREAK_DEADLINE
        run Deadline();
#endif
#ifdef BREAK_STOPPED
        run Stopped();
#endif
#if FAILURES > 0
        run Fate();
#endif
#if RESTARTS > 0
        run Restart();
#endif
#ifndef LIVENESS
        run Quiet();
        run Watch();
#endif
        j = 0
    }
}

#ifdef LIVENESS
#define wishes (st[0] == WAITING && fate[0] == WELL)
#define dead_holder (fate[N - 1] == DEAD && (holds[N - 1] || recorded[N - 1] != 0))

/* Whoever wants and is well is granted in the end, or stops wanting. Clients differ only in their
 * number, so one stands for all. */
ltl served { [] (wishes -> <> !wishes) }
/* The dead hold nothing for ever. */
ltl freed { [] (dead_holder -> <> !dead_holder) }
#endif
