/* What a library must leave alone in its host: signal handlers and masks, locale, rounding mode,
 * environment, working directory, umask, limits; and signals of the application keep arriving in
 * the application's own threads.
 *
 *     manners state       compares everything before and after use
 *     manners signals     works under a storm of signals, with handlers of its own */
#include "tenant.h"

#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static pthread_t main_thread;
static atomic_int user_signals, alarms, child_signals, strangers;
static sigjmp_buf back;

static void note_thread(void)
{
    if (!pthread_equal(pthread_self(), main_thread))
        atomic_fetch_add(&strangers, 1);
}

static void on_user(int number)
{
    (void)number;
    note_thread();
    atomic_fetch_add(&user_signals, 1);
}

static void on_alarm(int number)
{
    (void)number;
    note_thread();
    atomic_fetch_add(&alarms, 1);
}

static void on_child(int number)
{
    (void)number;
    atomic_fetch_add(&child_signals, 1);
}

static void on_fault(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

static struct sigaction action_of(int number)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigaction(number, NULL, &action);
    return action;
}

static void install(int number, void (*handler)(int), int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    REQUIRE(sigaction(number, &action, NULL) == 0);
}

static void test_state(void)
{
    dv_test_section("state of the process");
    struct sigaction actions[65];
    for (int i = 1; i <= 64; i++)
        actions[i] = action_of(i);
    sigset_t mask, mask_after;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    setlocale(LC_ALL, "");
    char *locale = strdup(setlocale(LC_ALL, NULL));
    fesetround(FE_UPWARD);
    umask(0137);
    char *directory = getcwd(NULL, 0);
    size_t variables = 0;
    char *first_variable = environ[0];
    for (char **variable = environ; *variable; variable++)
        variables++;
    struct rlimit limits[RLIM_NLIMITS];
    for (int i = 0; i < RLIM_NLIMITS; i++)
        getrlimit(i, &limits[i]);

    struct tenant tenant = tenant_open();
    tenant_work(&tenant);
    for (int i = 1; i <= 64; i++) {
        struct sigaction now = action_of(i);
        if (!CHECK(now.sa_handler == actions[i].sa_handler && now.sa_flags == actions[i].sa_flags))
            dv_test_detail("the handler of signal %d was changed", i);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
    CHECK(memcmp(&mask, &mask_after, sizeof mask / 16) == 0);
    CHECK(strcmp(setlocale(LC_ALL, NULL), locale) == 0);
    CHECK(fegetround() == FE_UPWARD);
    CHECK(umask(0) == 0137);
    char *directory_after = getcwd(NULL, 0);
    CHECK(strcmp(directory, directory_after) == 0);
    size_t variables_after = 0;
    for (char **variable = environ; *variable; variable++)
        variables_after++;
    CHECK(variables == variables_after && environ[0] == first_variable);
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit now;
        getrlimit(i, &now);
        CHECK(now.rlim_cur == limits[i].rlim_cur && now.rlim_max == limits[i].rlim_max);
    }
    /* The application has no children it does not know of. */
    CHECK(waitpid(-1, NULL, WNOHANG) == -1);
    tenant_close(&tenant);
    free(locale);
    free(directory);
    free(directory_after);
}

static void test_signals(void)
{
    dv_test_section("signals");
    main_thread = pthread_self();
    install(SIGUSR1, on_user, 0);
    install(SIGALRM, on_alarm, 0); /* no SA_RESTART: system calls are interrupted */
    install(SIGCHLD, on_child, 0);
    install(SIGSEGV, on_fault, SA_NODEFER);
    struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
    REQUIRE(setitimer(ITIMER_REAL, &often, NULL) == 0);
    struct tenant tenant = tenant_open();
    for (int i = 0; i < 150; i++) {
        kill(getpid(), SIGUSR1);
        tenant_work(&tenant);
        if (i % 50 == 0) {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            int status;
            while (waitpid(child, &status, 0) != child)
                ;
        }
        /* The application's own fault handler works. */
        if (i % 40 == 0 && sigsetjmp(back, 1) == 0) {
            volatile int *volatile nowhere = NULL;
            *nowhere = 1;
            CHECK(!"a fault went by");
        }
    }
    REQUIRE(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(atomic_load(&alarms) > 10);
    CHECK(atomic_load(&user_signals) > 100);
    CHECK(atomic_load(&child_signals) == 3);
    /* The library's own threads block what is the application's. */
    if (!CHECK(atomic_load(&strangers) == 0))
        dv_test_detail("%d signals were handled on threads of the library", atomic_load(&strangers));
    CHECK(action_of(SIGUSR1).sa_handler == on_user && action_of(SIGALRM).sa_handler == on_alarm);
    CHECK(action_of(SIGCHLD).sa_handler == on_child && action_of(SIGSEGV).sa_handler == on_fault);
    tenant_close(&tenant);
    CHECK(action_of(SIGSEGV).sa_handler == on_fault);
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 1);
    if (strcmp(argv[1], "state") == 0)
        test_state();
    else
        test_signals();
    return dv_test_result("manners");
}
