/* open_fds.h - how many descriptors are open, of the first 256. */
#pragma once

int open_fds(void);
