/* link_redirect.h - a broker that redirects what it is told to, when the test says so: the
 * other part of fake/priv.h.  Waiting calls count in fake_link_waiting(). */
#pragma once
#include "border/rules.h"
#include "ebpf/names.h"
#include "ebpf/rules_types.h"
#include "link.h"

/* What was asked for last, of any pod; and how often a pod was let go. */
const struct redirect_rules *fake_redirect_rules(void);
const struct redirect_question *fake_redirect_question(void); /* the last one */
const struct redirect_names_told *fake_redirect_names(void);  /* the last ones */
void fake_redirect_named(struct link *p, const char *why);    /* answers; why NULL: known */
int fake_redirect_dels(void);
int fake_redirect_shuts(void);
void fake_redirect_reset(void);

/* Answers; why NULL: in force, with that row and baseline. */
void fake_redirect_set(struct link *p, const struct uuid *pod, unsigned index,
    const struct redirect_counters *baseline, const char *why);
void fake_redirect_above(const char *what); /* of the next of these answers; NULL: nothing */
void fake_redirect_let_go(struct link *p, const struct uuid *pod, const char *why);
void fake_redirect_counters(struct link *p, int fd, const char *why); /* takes fd */
void fake_redirect_explained(struct link *p, unsigned verdict, const char *why);
void fake_redirect_traced(struct link *p, int fd, const char *why); /* takes fd */
/* Says it by itself. */
bool fake_redirect_is_noted(void); /* does anybody listen? */
void fake_redirect_note(const struct uuid *pod, const char *why, unsigned repaired);
