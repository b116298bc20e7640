/* metrics.h - counters, gauges and histograms in Prometheus' text format.
 *
 * A metric is made once at start and lives as long as the process; its samples are keyed by the
 * label text, which metric_labels() escapes.  Names: ecosystem.md 5.  Loop thread only.
 */
#pragma once
#include <stdint.h>

struct evbuffer;
struct metric;

struct metric *metric_counter(const char *name, const char *help); /* literals, kept */
struct metric *metric_gauge(const char *name, const char *help);
/* Of durations in seconds, which all have the same buckets: 5 ms to 30 s. */
struct metric *metric_histogram(const char *name, const char *help);
/* `labels`: "" or the text of metric_labels(). */
void metric_add(struct metric *m, const char *labels, double n);
void metric_set(struct metric *m, const char *labels, double v);
void metric_observe(struct metric *m, const char *labels, double seconds); /* a histogram's */
/* Forget every sample whose labels begin so: when a pod goes. */
void metrics_drop(const char *labels);
/* "key=\"value\"", values escaped; pairs end with NULL: metric_labels(buf, n, "pod", p, NULL). */
char *metric_labels(char *out, unsigned size, ...) __attribute__((sentinel));
#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"
void metrics_render(struct evbuffer *out);
void metrics_clear(void); /* all samples and metrics: for tests and orderly exit */
