{{- define "agentd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "agentd.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "agentd.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "agentd.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "agentd.selector" -}}
app.kubernetes.io/name: {{ include "agentd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agentd.labels" -}}
{{ include "agentd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Of what meshed pods need: `helm uninstall` leaves it, and says so. */}}
{{- define "agentd.kept" -}}
{{- if .Values.keepOnUninstall -}}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
{{- end }}

{{/* The webhook's own objects: no selector of agentd's matches them. */}}
{{- define "agentd.injector" -}}
{{- printf "%s-injector" (include "agentd.fullname" . | trunc 54 | trimSuffix "-") }}
{{- end }}

{{- define "agentd.injectorSelector" -}}
app.kubernetes.io/name: {{ include "agentd.name" . | trunc 54 | trimSuffix "-" }}-injector
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agentd.injectorLabels" -}}
{{ omit (include "agentd.labels" . | fromYaml) "app.kubernetes.io/name" "app.kubernetes.io/instance" | toYaml }}
{{ include "agentd.injectorSelector" . }}
{{- end }}

{{- define "agentd.serviceAccount" -}}
{{- default (include "agentd.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "agentd.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ printf "%s@%s" .repository .digest }}{{ else }}{{ printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}{{ end }}
{{- end }}
{{- end }}

{{/* agentd.yaml: the keys of agentd/worker/config/table.c and planes.c. */}}
{{- define "agentd.config" -}}
{{- $flat := dict
	"log_level" .Values.logLevel
	"log_json" .Values.logJson
	"istio_namespace" .Values.istioNamespace
	"cluster_domain" .Values.clusterDomain
	"ip_family" .Values.ipFamily
	"secret_ttl_min_s" (int64 .Values.secretTtlMinSeconds)
	"secret_ttl_max_s" (int64 .Values.secretTtlMaxSeconds)
	"publish_wait_ms" (int64 .Values.publishWaitMs)
	"certificate_scope" .Values.certificateScope
	"attest" .Values.attest
	"state_keys" .Values.stateKeys
	"pcds" .Values.pcds
	"redirect" .Values.redirect.mode
	"redirect_policy" .Values.redirect.policy
	"dns_upstream" (join "," .Values.redirect.dnsUpstream) }}
{{- range $key, $value := mergeOverwrite $flat (deepCopy .Values.settings) }}
{{ $key }}: {{ if kindIs "float64" $value }}{{ int64 $value }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
control_planes:
{{- $keys := dict
	"name" "name" "address" "address" "root" "root" "serverName" "server_name"
	"connections" "connections" "opensPerSecond" "opens_per_second" "opensBurst" "opens_burst"
	"podOpensPerSecond" "pod_opens_per_second" "podOpensBurst" "pod_opens_burst"
	"unreadStreamSeconds" "unread_stream_s" "holdEmptyPushSeconds" "hold_empty_push_s"
	"clusterId" "cluster_id" "meshId" "mesh_id" "trustDomain" "trust_domain" }}
{{- $shared := dict "clusterId" .Values.clusterId "meshId" .Values.meshId "trustDomain" .Values.trustDomain }}
{{- range $plane := .Values.controlPlanes }}
  -
  {{- range $key, $value := merge (deepCopy $plane) $shared }}
  {{- if and (hasKey $keys $key) (ne (toString $value) "") }}
    {{ get $keys $key }}: {{ if kindIs "float64" $value }}{{ int64 $value }}{{ else }}{{ toJson $value }}{{ end }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}
