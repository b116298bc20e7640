{{/* Which pods: one entry for each way to select them, so that no pod is selected by two. JSON {"hooks": [{name, ns, pod}]}. */}}
{{- define "agentd.injectorHooks" -}}
{{- $no := dict "key" "sidecar.istio.io/inject" "operator" "NotIn" "values" (list "false") }}
{{- $system := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" "kube-public" "kube-node-lease") }}
{{- $absent := list (dict "key" "istio-injection" "operator" "DoesNotExist") (dict "key" "istio.io/rev" "operator" "DoesNotExist") }}
{{- $hooks := list
	(dict "name" "namespace" "ns" (list $system (dict "key" "agentd.node.mesh/injection" "operator" "In" "values" (list "enabled")))
		"pod" (list $no (dict "key" "agentd.node.mesh/inject" "operator" "NotIn" "values" (list "false"))))
	(dict "name" "pod" "ns" (list $system (dict "key" "agentd.node.mesh/injection" "operator" "NotIn" "values" (list "enabled")))
		"pod" (list $no (dict "key" "agentd.node.mesh/inject" "operator" "In" "values" (list "true")))) }}
{{- if eq .Values.injector.selectors "istio" }}
{{- $rev := list (default "default" .Values.injector.revision) }}
{{- $hooks = list
	(dict "name" "rev.namespace" "ns" (list $system (dict "key" "istio.io/rev" "operator" "In" "values" $rev) (dict "key" "istio-injection" "operator" "DoesNotExist"))
		"pod" (list $no))
	(dict "name" "rev.pod" "ns" (append $absent $system)
		"pod" (list $no (dict "key" "istio.io/rev" "operator" "In" "values" $rev))) }}
{{- /* Who names no revision is the default one's. */}}
{{- if eq (first $rev) "default" }}
{{- $hooks = concat $hooks (list
	(dict "name" "namespace" "ns" (list $system (dict "key" "istio-injection" "operator" "In" "values" (list "enabled")))
		"pod" (list $no))
	(dict "name" "pod" "ns" (append $absent $system)
		"pod" (list (dict "key" "sidecar.istio.io/inject" "operator" "In" "values" (list "true")) (dict "key" "istio.io/rev" "operator" "DoesNotExist")))) }}
{{- end }}
{{- end }}
{{- dict "hooks" $hooks | toJson }}
{{- end }}

{{/* As Istio calls what is one revision's. (list ROOT NAME) */}}
{{- define "agentd.ofRevision" -}}
{{- $rev := (first .).Values.injector.revision }}
{{- ternary (last .) (printf "%s-%s" (last .) $rev) (has $rev (list "" "default")) }}
{{- end }}

{{/* Istio's own injector has the same selectors. */}}
{{- define "agentd.injectorAlone" -}}
{{- $its := include "agentd.ofRevision" (list . "istio-sidecar-injector") }}
{{- if and (eq .Values.injector.selectors "istio") (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" $its) }}
{{- fail (printf "injector.selectors istio: MutatingWebhookConfiguration %s has the same selectors; pods would be injected twice. Use selectors own, or remove it." $its) }}
{{- end }}
{{- end }}

{{/* A value as a CEL literal; maps and lists hold dyn. */}}
{{- define "agentd.cel" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $k := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ toJson $k }}: dyn({{ include "agentd.cel" (get $ $k) }}){{ end -}} }
{{- else if kindIs "slice" . -}}
[ {{- range $i, $v := . }}{{ if $i }}, {{ end }}dyn({{ include "agentd.cel" $v }}){{ end -}} ]
{{- else if kindIs "float64" . -}}
{{- if eq (float64 (int64 .)) . }}{{ int64 . }}{{ else }}{{ toJson . }}{{ end -}}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{/* A scalar as text, as the engine's inject_text(); empty: there is none. (list VALUE OTHERWISE) */}}
{{- define "agentd.text" -}}
{{- $v := index . 0 }}
{{- if kindIs "float64" $v }}{{ $v = include "agentd.cel" $v }}{{ end }}
{{- if or (kindIs "invalid" $v) (kindIs "map" $v) (kindIs "slice" $v) (eq (toString $v) "") }}{{ index . 1 }}{{ else }}{{ toString $v }}{{ end }}
{{- end }}

{{/*
  --- injector.mode policy: what its two policies share ---
*/}}
{{- define "agentd.policyName" -}}
{{- printf "agentd-injector.%s" (include "agentd.fullname" .) }}
{{- end }}

{{- define "agentd.statusPort" -}}
{{- include "agentd.text" (list (default dict .Values.injector.meshConfig.defaultConfig).statusPort "15020") }}
{{- end }}

{{/* Shall it be injected (agentd/inject/rule.c). */}}
{{- define "agentd.policyMatch" -}}
failurePolicy: {{ .Values.injector.failurePolicy }}
matchConstraints:
  resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [pods]
      scope: Namespaced
matchConditions:
  - name: no-host-network
    expression: "!has(object.spec.hostNetwork) || !object.spec.hostNetwork"
  - name: no-namespace-of-kubernetes
    expression: "!(request.namespace in ['kube-system', 'kube-public', 'kube-node-lease', 'local-path-storage'])"
  - name: wanted
    expression: >-
      (has(object.metadata.labels) && object.metadata.labels[?'sidecar.istio.io/inject'].orValue('') != ''
      ? object.metadata.labels['sidecar.istio.io/inject']
      : has(object.metadata.annotations) ? object.metadata.annotations[?'sidecar.istio.io/inject'].orValue('') : '') != 'false'
{{- end }}

{{/* One binding for each way to select pods. */}}
{{- define "agentd.policyBindings" -}}
{{- $name := include "agentd.policyName" .root }}
{{- range (include "agentd.injectorHooks" .root | fromJson).hooks }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: {{ $.kind }}
metadata:
  name: {{ .name }}.{{ $name }}
  labels:
    {{- include "agentd.injectorLabels" $.root | nindent 4 }}
spec:
  policyName: {{ $name }}
  {{- with $.actions }}
  validationActions: {{ . }}
  {{- end }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        {{- toYaml .ns | nindent 8 }}
    objectSelector:
      matchExpressions:
        {{- toYaml .pod | nindent 8 }}
{{- end }}
{{- end }}

{{/* What both ask of a pod; the last one is why it is not injected, in the engine's words, and '' if it is. */}}
{{- define "agentd.policyVariables" -}}
{{- $quantity := "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,3})?$" }}
{{- $checked := list
	(list "sidecar.istio.io/interceptionMode" "x in ['REDIRECT', 'TPROXY', 'NONE']" "interceptionMode invalid, use REDIRECT,TPROXY,NONE")
	(list "status.sidecar.istio.io/port" "x.matches('^[0-9]{1,11}$') && int(x) < 65536" "must be a port, 0 to 65535")
	(list "prometheus.istio.io/merge-metrics" "x in ['1', 't', 'T', 'TRUE', 'true', 'True', '0', 'f', 'F', 'FALSE', 'false', 'False']" "must be true or false")
	(list "sidecar.istio.io/proxyCPULimit" "x.matches('^[0-9]{1,9}([.][0-9]{1,9})?m?$')" "a policy reads 100m, 2 or 1.5 here") }}
{{- range list "initialDelaySeconds" "periodSeconds" "failureThreshold" }}
{{- $checked = append $checked (list (print "readiness.status.sidecar.istio.io/" .) "x.matches('^[0-9]{1,11}$') && int(x) <= 4294967295" "must be a whole number, 0 to 4294967295") }}
{{- end }}
{{- range list "proxyCPU" "proxyMemory" "proxyMemoryLimit" }}
{{- $checked = append $checked (list (print "sidecar.istio.io/" .) (printf "x.size() <= 64 && x.matches('%s')" $quantity) "must be a quantity: 100m, 2, 128Mi") }}
{{- end }}
{{- /* Beyond a policy: YAML, JSON, rules of a node that CEL does not have. */}}
{{- $beyond := list "proxy.istio.io/config" "proxy.istio.io/overrides" "sidecar.istio.io/userVolume" "sidecar.istio.io/userVolumeMount"
	"sidecar.istio.io/discoveryAddress" "sidecar.istio.io/statsInclusionPrefixes" "sidecar.istio.io/statsInclusionSuffixes"
	"sidecar.istio.io/statsInclusionRegexps" "sidecar.istio.io/extraStatTags" "sidecar.istio.io/statsHistogramBuckets"
	"sidecar.istio.io/statsFlushInterval" "sidecar.istio.io/statsEvictionInterval" "prometheus.istio.io/scrape-targets"
	"traffic.sidecar.istio.io/excludeInterfaces" "agentd.node.mesh/probePorts" -}}
- name: annotations
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
- name: labels
  expression: "has(object.metadata.labels) ? object.metadata.labels : {}"
- name: containers
  expression: "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
# Where the kubelet asks; Envoy's own and agentd's are open to it anyway.
- name: probePorts
  expression: >-
    variables.containers.map(c, [?c.?readinessProbe, ?c.?livenessProbe, ?c.?startupProbe, ?c.?lifecycle.?preStop, ?c.?lifecycle.?postStart]
    .map(h, [?h.?grpc, ?h.?httpGet, ?h.?tcpSocket].filter(a, a.?host.orValue('') == '')
    .map(a, (c.?ports.orValue([]).filter(p, p.?name.orValue('') == string(a.port)).map(p, string(p.containerPort)) + [string(a.port)])[0]))).flatten(2)
    .filter(x, x.matches('^[0-9]{1,5}$') && !(x in ['0', '15000', '15001', '15004', '15006', '15008', '15020', '15021', '15053', '15090'])).distinct()
# What Prometheus asks (agentd/inject/probes.c), and whether Envoy asks it in its place.
- name: scrape
  expression: "['prometheus.io/path', 'prometheus.io/port', 'prometheus.io/scrape'].filter(k, k in variables.annotations)"
- name: merged
  expression: >-
    !(variables.annotations[?'prometheus.istio.io/merge-metrics'].orValue('{{ include "agentd.text" (list .Values.injector.meshConfig.enablePrometheusMerge "true") }}')
    in ['0', 'f', 'F', 'FALSE', 'false', 'False'])
    && variables.annotations[?'prometheus.io/port'].orValue('') != '{{ include "agentd.statusPort" . }}'
    && !(variables.annotations[?'prometheus.io/scrape'].orValue('') in ['0', 'f', 'F', 'FALSE', 'false', 'False'])
- name: beyond
  expression: >-
    [{{ range $i, $k := $beyond }}{{ if $i }}, {{ end }}'{{ $k }}'{{ end }}].filter(k, k in variables.annotations)
- name: why
  expression: >-
    'sidecar.istio.io/status' in variables.annotations
    ? 'injected by another injector (annotation sidecar.istio.io/status): use the manifest that it was made from'
    {{- with .Values.injection.sandboxedRuntimeClasses }}
    : object.spec.?runtimeClassName.orValue('') in {{ toJson . | replace "\"" "'" }}
    ? 'runtimeClassName ' + object.spec.runtimeClassName + ' is a sandbox: sockets and cgroups of the node end at it'
    {{- end }}
    : !(variables.annotations[?'inject.istio.io/templates'].orValue('') in ['', '{{ .Values.injection.templateName }}'])
    ? 'requested template not found; have {{ .Values.injection.templateName }}'
    : has(object.spec.volumes) && object.spec.volumes.exists(v, v.name == 'agentd')
    ? 'the pod has a volume "agentd" already: rename it'
    {{- if eq .Values.injector.selectors "own" }}
    : 'sidecar.istio.io/inject' in variables.labels
    ? 'label sidecar.istio.io/inject: istiod\'s injector would inject this pod, too: remove the label'
    {{- end }}
    {{- range $checked }}
    : !variables.annotations[?'{{ index . 0 }}'].optMap(x, string(x)).optMap(x, {{ index . 1 }}).orValue(true)
    ? 'invalid value for annotation \'{{ index . 0 }}\': {{ index . 2 }}'
    {{- end }}
    : variables.containers.exists(c, c.name == 'istio-proxy') ? 'a policy cannot do the pod\'s own container istio-proxy'
    : variables.annotations[?'sidecar.istio.io/nativeSidecar'].orValue('') == 'false' ? 'a policy cannot do annotation sidecar.istio.io/nativeSidecar: false'
    : variables.annotations[?'agentd.node.mesh/redirect'].orValue('') in ['istio-cni', 'istio-init']
    ? 'a policy cannot do annotation agentd.node.mesh/redirect: istio-cni or istio-init, where probes are rewritten'
    : variables.beyond.size() > 0 ? 'a policy cannot do annotation ' + variables.beyond[0]
    : variables.annotations.exists(k, k.matches('^prometheus[^A-Za-z0-9]io[^A-Za-z0-9](scrape|path|port)$') && !k.startsWith('prometheus.io/'))
    ? 'a policy reads prometheus.io/scrape, path and port in this spelling alone'
    : variables.merged && variables.scrape.size() > 0 && !(variables.annotations[?'prometheus.io/path'].orValue('').matches('^(/[!-~]{0,1000})?$'))
    ? 'prometheus.io/path: must begin with / and be up to 1000 printable characters'
    : variables.merged && variables.scrape.size() > 0 && !(variables.annotations[?'prometheus.io/port'].orValue('80').matches('^[0-9]{1,5}$')
    && !(int(variables.annotations[?'prometheus.io/port'].orValue('80')) in [15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090])
    && int(variables.annotations[?'prometheus.io/port'].orValue('80')) >= 1 && int(variables.annotations[?'prometheus.io/port'].orValue('80')) <= 65535)
    ? 'prometheus.io/port: must be 1 to 65535, none of Envoy\'s and agentd\'s'
    : variables.annotations.exists(k, variables.annotations[k].matches('[\\x00-\\x07\\x0b\\x0e-\\x1f]')) ? 'a policy cannot do control characters in annotations'
    : variables.probePorts.exists(p, int(p) == int(variables.annotations[?'status.sidecar.istio.io/port'].orValue('0')))
    ? 'status.sidecar.istio.io/port is a port that the app is probed at'
    : ''
{{- end }}
