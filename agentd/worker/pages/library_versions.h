/* library_versions.h - the versions that the loaded libraries report (security-rules.md 9). */
#pragma once

typedef void (*library_versions_named)(void *ctx, const char *library, const char *version);
void library_versions_each(library_versions_named named, void *ctx);
