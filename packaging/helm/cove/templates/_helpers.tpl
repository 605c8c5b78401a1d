{{- define "cove.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" (.Release.Name | trunc 35 | trimSuffix "-") .Chart.Name }}{{ end }}
{{- end }}

{{- define "cove.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cove.labels" -}}
{{ include "cove.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "cove.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "cove.secret" -}}
{{ .Values.existingSecret | default (include "cove.name" .) }}
{{- end }}

{{- define "cove.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "cove.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "cove.scheme" -}}
{{ ternary "HTTPS" "HTTP" (ne .Values.tls.secretName "") }}
{{- end }}

{{/* cove.toml, which the ConfigMap has and pods are made anew for. */}}
{{- define "cove.config" -}}
{{- $any := ternary "[::]" "0.0.0.0" .Values.cluster.ipv6 -}}
# Made by Helm. `cove config show` in a pod shows what is in force.
data_dir = "/var/lib/cove"
http = "{{ $any }}:4100"
drain_s = {{ int .Values.drainSeconds }}
log.format = "json"
store.url = "file:/etc/cove/secrets/store_url"
secrets_key = "file:/etc/cove/secrets/secrets_key"
executions.jobs.webhook_key = "file:/etc/cove/secrets/webhook_key"
objects.url = {{ required "objects.url: nodes share a bucket; set it to s3://BUCKET" .Values.objects.url | toJson }}
{{- if not .Values.objects.fromEnvironment }}
objects.access_key_id = "file:/etc/cove/secrets/objects_access_key_id"
objects.secret_access_key = "file:/etc/cove/secrets/objects_secret_access_key"
{{- end }}
cluster.listen = "{{ $any }}:4190"
bouncer.enabled = {{ .Values.bouncer.enabled }}
{{- if .Values.bouncer.enabled }}
bouncer.listen = "{{ $any }}:6432"
bouncer.mysql.listen = "{{ $any }}:6433"
{{- end }}
catalog.enabled = {{ .Values.catalog.enabled }}
{{- if .Values.catalog.enabled }}
catalog.root = {{ required "catalog.root: nodes share a bucket for tables; set it to s3://BUCKET/PREFIX" .Values.catalog.root | toJson }}
{{- if not .Values.objects.fromEnvironment }}
catalog.access_key_id = "file:/etc/cove/secrets/objects_access_key_id"
catalog.secret_access_key = "file:/etc/cove/secrets/objects_secret_access_key"
{{- end }}
{{- end }}
{{- if .Values.e2b.enabled }}
compat.e2b.listen = "{{ $any }}:4200"
{{- end }}
{{- if .Values.tls.secretName }}
tls.cert = "/etc/cove/tls/tls.crt"
tls.key = "/etc/cove/tls/tls.key"
{{- end }}
{{- if and .Values.nodes.drainWithMachine .Values.nodes.drainTaints }}
cluster.kubernetes.drain_taints = {{ .Values.nodes.drainTaints | toJson }}
{{- end }}
{{- with .Values.config }}
{{ . | trim }}
{{- end }}
{{- end }}

{{/* What all pods are made anew for when it changes. */}}
{{- define "cove.checksums" -}}
checksum/config: {{ include "cove.config" . | sha256sum }}
{{- if not .Values.existingSecret }}
checksum/secret: {{ toJson .Values.secret | sha256sum }}
{{- end }}
{{- end }}

{{- define "cove.mounts" -}}
- {name: config, mountPath: /etc/cove/cove.toml, subPath: cove.toml, readOnly: true}
- {name: secrets, mountPath: /etc/cove/secrets, readOnly: true}
{{- if .Values.tls.secretName }}
- {name: tls, mountPath: /etc/cove/tls, readOnly: true}
{{- end }}
{{- end }}

{{/* Of root and a dictionary: `mode` of secrets. */}}
{{- define "cove.volumes" -}}
- name: config
  configMap: {name: {{ include "cove.name" .root }}}
- name: secrets
  secret: {secretName: {{ include "cove.secret" .root }}, defaultMode: {{ .mode }}}
{{- with .root.Values.tls.secretName }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: {{ $.mode }}}
{{- end }}
{{- end }}

{{/* The image says where it listens, for those who have no file; with IPv6 it is said again. */}}
{{- define "cove.listeners" -}}
{{- if .Values.cluster.ipv6 -}}
- {name: COVE_HTTP, value: "[::]:4100"}
- {name: COVE_BOUNCER__LISTEN, value: "[::]:6432"}
- {name: COVE_BOUNCER__MYSQL__LISTEN, value: "[::]:6433"}
{{- end }}
{{- end }}
