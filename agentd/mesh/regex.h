/* regex.h - is a text a regular expression that Envoy takes?  Pure.
 *
 * Envoy compiles with RE2, and does not start with one that RE2 refuses.  Known here is the part of
 * RE2's language that names of statistics need; what else RE2 takes is refused, never the other
 * way round:
 *
 *   literals, `.`, `^`, `$`, `|`, (...), (?:...), `*`, `+`, `?`, {n}, {n,}, {n,m}, lazy ones too,
 *   classes with ranges and [:names:], \d \D \w \W \s \S \b \B and escaped punctuation.
 *
 * Printable ASCII; groups 16 deep; no {n} inside another; as a program at most half of what Envoy
 * takes (re2.max_program_size of runtime.c).
 */
#pragma once
#include <stdbool.h>

bool regex_is_safe(const char *pattern);
