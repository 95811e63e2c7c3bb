// LD_PRELOAD: copies what is on disk for sure, so that a test can take away everything else, as a power cut does.
//
// When a process syncs a file below $POWER_ROOT, the file is copied to $POWER_COPY, under its path with '%' for '/'.
// Renames and removals count as durable at once. A file that ends in .aof is only appended to, so only its new end is
// copied.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);

__attribute__((constructor)) static void find(void)
{
	real_rename = dlsym(RTLD_NEXT, "rename");
	real_unlink = dlsym(RTLD_NEXT, "unlink");
}

static int copy_path(char *out, const char *path)
{
	const char *root = getenv("POWER_ROOT"), *copies = getenv("POWER_COPY");
	char full[PATH_MAX];
	if (!root || !copies || !path)
		return 0;
	if (path[0] == '/')
		snprintf(full, sizeof full, "%s", path);
	else if (getcwd(full, sizeof full / 2))
		snprintf(full + strlen(full), sizeof full - strlen(full), "/%s", path);
	if (strncmp(full, root, strlen(root)) != 0)
		return 0;
	for (char *at = full; *at; at++)
		if (*at == '/')
			*at = '%';
	return snprintf(out, PATH_MAX, "%s/%s", copies, full) < PATH_MAX;
}

static void append(int from, int to, off_t begin, off_t end)
{
	lseek(to, begin, SEEK_SET);
	while (begin < end && sendfile(to, from, &begin, end - begin) > 0)
		;
}

static void keep(int fd)
{
	char link[64], path[PATH_MAX] = "", copy[PATH_MAX], fresh[PATH_MAX + 8];
	struct stat now, before;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (fstat(fd, &now) || !S_ISREG(now.st_mode) || readlink(link, path, sizeof path - 1) < 0 || !copy_path(copy, path))
		return;
	int from = open(path, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		return;
	size_t length = strlen(path);
	if (length > 4 && !strcmp(path + length - 4, ".aof") && !stat(copy, &before) && before.st_size <= now.st_size) {
		int to = open(copy, O_WRONLY | O_CLOEXEC);
		append(from, to, before.st_size, now.st_size);
		close(to);
	} else {
		snprintf(fresh, sizeof fresh, "%s.new", copy);
		int to = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		append(from, to, 0, now.st_size);
		close(to);
		real_rename(fresh, copy);
	}
	close(from);
}

static int synced(const char *name, int fd)
{
	int (*real)(int) = dlsym(RTLD_NEXT, name);
	int result = real(fd);
	pthread_mutex_lock(&lock);
	if (result == 0)
		keep(fd);
	pthread_mutex_unlock(&lock);
	return result;
}

int fsync(int fd)
{
	return synced("fsync", fd);
}

int fdatasync(int fd)
{
	return synced("fdatasync", fd);
}

int rename(const char *old, const char *new)
{
	char from[PATH_MAX], to[PATH_MAX];
	int result = real_rename(old, new);
	if (result == 0 && copy_path(from, old) && copy_path(to, new))
		real_rename(from, to);
	return result;
}

int unlink(const char *path)
{
	char copy[PATH_MAX];
	int result = real_unlink(path);
	if (result == 0 && copy_path(copy, path))
		real_unlink(copy);
	return result;
}
