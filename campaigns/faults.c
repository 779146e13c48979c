/* Records the calls of a process and its children that change files below a folder, and lets one of them fail.

   Loaded with LD_PRELOAD. CAMPAIGN_CONTROL names a file with a `struct control`, which processes share:
   campaigns/faults.py writes it. Calls are numbered from 1 in the order in which they are carried out. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum mode { RECORD, KILL_BEFORE, KILL_WITHIN, FAIL_ONCE, FAIL_ON };

struct control {
    int32_t armed, mode, error, reserved;
    int64_t target, count;
    char root[512], log[512];
    pthread_mutex_t mutex;
};

static struct control *control;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("CAMPAIGN_CONTROL");
    int handle = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (handle < 0) return;
    void *found = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    syscall(SYS_close, handle);
    if (found != MAP_FAILED) control = found;
}

/* Called by the server once, before any child exists. */
void campaign_prepare(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&control->mutex, &attributes);
}

size_t campaign_size(void) { return sizeof(struct control); }

static void lock(void)
{
    if (pthread_mutex_lock(&control->mutex) == EOWNERDEAD) pthread_mutex_consistent(&control->mutex);
}

static void unlock(void) { pthread_mutex_unlock(&control->mutex); }

/* The absolute path of `path` relative to the folder `at`, or an empty text. */
static void absolute(int at, const char *path, char *into)
{
    into[0] = 0;
    if (!path) return;
    if (path[0] == '/') {
        snprintf(into, PATH_MAX, "%s", path);
        return;
    }
    char folder[PATH_MAX];
    if (at == AT_FDCWD) {
        if (!getcwd(folder, sizeof folder)) return;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t size = readlink(link, folder, sizeof folder - 1);
        if (size < 0) return;
        folder[size] = 0;
    }
    snprintf(into, PATH_MAX, "%s/%s", folder, path);
}

static void of_handle(int handle, char *into)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t size = readlink(link, into, PATH_MAX - 1);
    into[size < 0 ? 0 : size] = 0;
}

static int watched(const char *path)
{
    size_t size = strlen(control->root);
    return strncmp(path, control->root, size) == 0 && (path[size] == '/' || path[size] == 0);
}

static void record(char kind, const char *one, const char *other, off_t offset, const void *data, size_t size)
{
    int handle = (int)syscall(SYS_openat, AT_FDCWD, control->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (handle < 0) return;
    char head[2 * PATH_MAX + 128];
    int length = snprintf(head, sizeof head, "%c\n%d\n%s\n%s\n%lld\n%zu\n", kind, (int)getpid(), one, other,
                          (long long)offset, size);
    syscall(SYS_write, handle, head, (size_t)length);
    if (size) syscall(SYS_write, handle, data, size);
    syscall(SYS_close, handle);
}

static void end(void)
{
    unlock();
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* Begin a call: returns 0 to let it happen, -1 with errno set to let it fail; the lock is held after 0. */
static int begin(char kind, const char *one, const char *other, off_t offset, const void *data, size_t size,
                 int *last)
{
    lock();
    int64_t number = ++control->count;
    *last = 0;
    int reached = number == control->target;
    if (reached && control->mode == KILL_BEFORE) {
        record('!', one, &kind, 0, NULL, 0);
        end();
    }
    if ((reached && control->mode == FAIL_ONCE) || (number >= control->target && control->mode == FAIL_ON)) {
        char text[2] = {kind, 0};
        record('?', one, text, 0, NULL, 0);
        unlock();
        errno = control->error;
        return -1;
    }
    if (reached && control->mode == KILL_WITHIN) *last = 1;
    record(kind, one, other, offset, data, size);
    return 0;
}

static int active(void) { return control && control->armed; }

#define CHANGE(kind, one, other, call) \
    do { \
        int last; \
        if (begin(kind, one, other, 0, NULL, 0, &last)) return -1; \
        __auto_type result = (call); \
        int kept = errno; \
        if (last) end(); \
        unlock(); \
        errno = kept; \
        return result; \
    } while (0)

static int opened(int at, const char *path, int flags, mode_t mode, int (*call)(int, const char *, int, ...))
{
    char one[PATH_MAX];
    if (active() && (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) && !(flags & O_PATH)) {
        absolute(at, path, one);
        if (watched(one)) CHANGE(flags & O_TRUNC ? 'T' : 'O', one, "", call(at, path, flags, mode));
    }
    return call(at, path, flags, mode);
}

static mode_t mode_of(int flags, va_list more)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

static int plain_openat(int at, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags | O_CREAT, more);
    va_end(more);
    return (int)syscall(SYS_openat, at, path, flags, mode);
}

#define OPEN(name, parameters, at, extra) \
    int name parameters \
    { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = mode_of(flags, more); \
        va_end(more); \
        return opened(at, path, flags | extra, mode, plain_openat); \
    }

OPEN(open, (const char *path, int flags, ...), AT_FDCWD, 0)
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, 0)
OPEN(openat, (int at, const char *path, int flags, ...), at, 0)
OPEN(openat64, (int at, const char *path, int flags, ...), at, 0)

int creat(const char *path, mode_t mode)
{
    return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, plain_openat);
}

static ssize_t written(int handle, const void *data, size_t size, off_t offset)
{
    char one[PATH_MAX];
    int positioned = offset >= 0;
    long number = positioned ? SYS_pwrite64 : SYS_write;
    if (!active() || handle < 0) return syscall(number, handle, data, size, offset);
    of_handle(handle, one);
    if (!watched(one)) return syscall(number, handle, data, size, offset);
    if (!positioned) {
        int flags = fcntl(handle, F_GETFL);
        struct stat state;
        offset = flags & O_APPEND && fstat(handle, &state) == 0 ? state.st_size : lseek(handle, 0, SEEK_CUR);
    }
    int last;
    if (begin('W', one, "", offset, data, size, &last)) return -1;
    if (last) size /= 2; /* Half of it, and no more. */
    ssize_t result = positioned ? syscall(SYS_pwrite64, handle, data, size, offset)
                                : syscall(SYS_write, handle, data, size);
    int kept = errno;
    if (last) end();
    unlock();
    errno = kept;
    return result;
}

ssize_t write(int handle, const void *data, size_t size) { return written(handle, data, size, -1); }
ssize_t pwrite(int handle, const void *data, size_t size, off_t offset) { return written(handle, data, size, offset); }
ssize_t pwrite64(int handle, const void *data, size_t size, off_t offset) { return written(handle, data, size, offset); }

#define ON_HANDLE(kind, name) \
    int name(int handle) \
    { \
        char one[PATH_MAX]; \
        REAL(name); \
        if (active()) { \
            of_handle(handle, one); \
            if (watched(one)) CHANGE(kind, one, "", real(handle)); \
        } \
        return real(handle); \
    }

ON_HANDLE('F', fsync)
ON_HANDLE('F', fdatasync)

static int truncated(int handle, off_t size)
{
    char one[PATH_MAX];
    if (active()) {
        of_handle(handle, one);
        if (watched(one)) {
            int last;
            if (begin('S', one, "", size, NULL, 0, &last)) return -1;
            int result = (int)syscall(SYS_ftruncate, handle, size), kept = errno;
            if (last) end();
            unlock();
            errno = kept;
            return result;
        }
    }
    return (int)syscall(SYS_ftruncate, handle, size);
}

int ftruncate(int handle, off_t size) { return truncated(handle, size); }
int ftruncate64(int handle, off_t size) { return truncated(handle, size); }

static int on_two(char kind, int at, const char *one, int to, const char *other, long number)
{
    char first[PATH_MAX], second[PATH_MAX];
    if (active()) {
        absolute(at, one, first);
        absolute(to, other, second);
        if (watched(first) || watched(second))
            CHANGE(kind, first, second, (int)syscall(number, at, one, to, other, 0));
    }
    return (int)syscall(number, at, one, to, other, 0);
}

int rename(const char *one, const char *other)
{
    return on_two('R', AT_FDCWD, one, AT_FDCWD, other, SYS_renameat2);
}

int renameat(int at, const char *one, int to, const char *other)
{
    return on_two('R', at, one, to, other, SYS_renameat2);
}

int link(const char *one, const char *other) { return on_two('L', AT_FDCWD, one, AT_FDCWD, other, SYS_linkat); }

static int removed(int at, const char *path, int flags)
{
    char one[PATH_MAX];
    if (active()) {
        absolute(at, path, one);
        if (watched(one))
            CHANGE(flags & AT_REMOVEDIR ? 'D' : 'U', one, "", (int)syscall(SYS_unlinkat, at, path, flags));
    }
    return (int)syscall(SYS_unlinkat, at, path, flags);
}

int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return removed(at, path, flags); }
int rmdir(const char *path) { return removed(AT_FDCWD, path, AT_REMOVEDIR); }

static int made(int at, const char *path, mode_t mode)
{
    char one[PATH_MAX];
    if (active()) {
        absolute(at, path, one);
        if (watched(one)) CHANGE('M', one, "", (int)syscall(SYS_mkdirat, at, path, mode));
    }
    return (int)syscall(SYS_mkdirat, at, path, mode);
}

int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return made(at, path, mode); }
