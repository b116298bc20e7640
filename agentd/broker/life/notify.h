/* notify.h - the service manager: our messages to it, and the descriptors it keeps for us.
 *
 * The protocol of sd_notify(3), FileDescriptorStoreMax= and WatchdogSec=, over $NOTIFY_SOCKET;
 * without that variable nothing is done.  systemd hears from the broker only (NotifyAccess=main):
 * the worker's environment has none of this (decisions.md 2).
 */
#pragma once
#include "broker/base/fdstore.h"
#include <stdint.h>

/* Opens the way to $NOTIFY_SOCKET: a path, or '@' and an abstract name.  Once in a process. */
void notify_open(void);
void notify_close(void);

/* Lines "KEY=VALUE", separated by '\n': "READY=1\nSTATUS=250 pods". */
void notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Nothing waits: what a manager that does not read could not be told is kept, in order, and tried
 * again with the next message and with this. */
void notify_again(void);
const char *notify_problem(void); /* NULL: it reads, or there is none */
/* RELOADING=1, to be followed by READY=1. */
void notify_reloading(void);

/* How often WATCHDOG=1 is expected, in ms; 0: never. */
int64_t notify_watchdog_ms(void);

/* Descriptors that systemd kept for an earlier broker ($LISTEN_FDS) become `found`.  Each put and
 * drop is mirrored to it from now on.  The lock is not: held by systemd, it would keep every agentd
 * out while none runs. */
void notify_keep(struct broker_fdstore *k);
