/* pages_dns.h - what `agentctl dns` asks: /dns[?name=NAME]. */
#pragma once

struct admin;
struct pod_registry;

/* Every pod's DNS, and what the name is there. */
void pages_dns(struct admin *a, struct pod_registry *pods);
