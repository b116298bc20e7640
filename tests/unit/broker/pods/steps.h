/* steps.h - a step that ends the broker. */
#pragma once
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Does it abort?  In a child, so nothing is changed here. */
bool steps_ends(void (*step)(void));
