/* version.h - which sources the programs are of. */
#pragma once

/* "0.1.0+3f2a1b9c0d4e": release and commit.  ".dirty" follows if files differed from that commit.
 * Built outside of a repository it is the release alone. */
extern const char version_text[];
