/* library.h - OpenSSL itself.
 *
 * exit() runs OpenSSL's own clean-up while threads of grpc may still be in a handshake
 * (grpc-core.md 7): they would use what was freed.  So there is none; the kernel frees it all.
 */
#pragma once

/* Once, before anything of OpenSSL is called: later it has no effect. */
void library_stays(void);
