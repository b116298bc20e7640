/* rows.c - the lines of rows.h as a table; a file of its own, so that a test may have another one.
 */
#include "rows.h"

#define POD_ROW(name) &pod_##name##_service,
const struct pod_service *const pod_rows[] = {POD_ROWS(POD_ROW) NULL};
