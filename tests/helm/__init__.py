"""The Helm chart helm/agentd: rendered, validated, its configuration read by agentd, its template run by istiod's injector."""
