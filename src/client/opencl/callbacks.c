/* The callback thread runs the application's functions, which can take long or call OpenCL. It blocks all signals: the
 * application's handlers run on the application's threads. */
#include <signal.h>

#include "src/client/opencl/session.h"

bool dvc_thread_start(void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct dvc_job *first, **end;
    bool started;
} callbacks = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void *run_callbacks(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&callbacks.lock);
        while (!callbacks.first)
            pthread_cond_wait(&callbacks.more, &callbacks.lock);
        struct dvc_job *job = callbacks.first;
        callbacks.first = job->next;
        if (!callbacks.first)
            callbacks.end = &callbacks.first;
        pthread_mutex_unlock(&callbacks.lock);
        job->run(job);
    }
    return NULL;
}

bool dvc_callbacks_start(void)
{
    pthread_mutex_lock(&callbacks.lock);
    if (!callbacks.started)
        callbacks.started = dvc_thread_start(run_callbacks, NULL);
    bool started = callbacks.started;
    pthread_mutex_unlock(&callbacks.lock);
    return started;
}

void dvc_callback_post(struct dvc_job *job, void (*run)(struct dvc_job *))
{
    *job = (struct dvc_job){.run = run};
    pthread_mutex_lock(&callbacks.lock);
    if (!callbacks.end)
        callbacks.end = &callbacks.first;
    *callbacks.end = job;
    callbacks.end = &job->next;
    if (!callbacks.started) /* in a forked child */
        callbacks.started = dvc_thread_start(run_callbacks, NULL);
    pthread_cond_signal(&callbacks.more);
    pthread_mutex_unlock(&callbacks.lock);
}

void dvc_callbacks_after_fork(void)
{
    pthread_mutex_init(&callbacks.lock, NULL);
    pthread_cond_init(&callbacks.more, NULL);
    callbacks.first = NULL;
    callbacks.end = NULL;
    callbacks.started = false;
}
