/* agent_dns_page.h - what `agentctl dns` asks: /dns[?name=NAME]. */
#pragma once

struct admin;
struct pod_registry;

/* Every pod's DNS, and what the name is there. */
void agent_dns_page(struct admin *a, struct pod_registry *pods);
