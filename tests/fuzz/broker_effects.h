/* broker_effects.h - what a broker may have done at the request of a hostile worker, and what not.
 *
 * A directory beside the broker's is watched: nothing in it changes, not even a time, and its
 * secret is never handed out.  Below <run> there are only names that the broker makes, of the kind
 * it makes them.  A descriptor that it hands out is a listener of its own, a socket of a pod's
 * network, or sealed memory.  What it mounts is a pod's directory, read-only, on that pod's volume.
 */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

extern char effects_dir[32], effects_secret[64];

void effects_watch(void);
void effects_unwatch(void);
void effects_check(const char *run); /* NULL: root changed what is below */
void effects_check_identities(const char *dir);
void effects_check_mounts(const char *kubelet);
void effects_check_listener(int fd, const char *run);
/* One to dial with, of a pod's network namespace and not connected to anybody. */
bool effects_is_pods_socket(int fd, ino_t home);
void effects_check_memory(int fd);
