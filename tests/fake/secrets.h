/* secrets.h - sees whether memory that holds a secret is freed without having been wiped.
 *
 * Secrets of a test contain the word SECRET.  Works where a sanitizer's allocator is linked in;
 * elsewhere nothing is found, and secrets_watched() says so.
 */
#pragma once
#include <stdbool.h>

bool secrets_watched(void);
void secrets_watch(void);     /* start anew */
unsigned secrets_freed(void); /* blocks that were freed with a secret inside since then */
