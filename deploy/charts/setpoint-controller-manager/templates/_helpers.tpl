{{- define "setpoint.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "setpoint.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "setpoint.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "setpoint.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "setpoint.selectorLabels" -}}
app.kubernetes.io/name: {{ include "setpoint.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "setpoint.labels" -}}
{{ include "setpoint.selectorLabels" . }}
app.kubernetes.io/component: controller-manager
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "setpoint.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "setpoint.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: name an account, or set serviceAccount.create" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "setpoint.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The entries of files/controllers.json that `controllers` and `featureGates` select, as JSON: {"items": […]}. */}}
{{- define "setpoint.selected" -}}
{{- $all := .Files.Get "files/controllers.json" | fromJsonArray -}}
{{- $words := .Values.controllers -}}
{{- $gates := .Values.featureGates -}}
{{- $known := list "*" -}}
{{- range $all -}}
  {{- $known = concat (append $known .name) .aliases -}}
{{- end -}}
{{- range $words -}}
  {{- if not (has (trimPrefix "-" .) $known) -}}
    {{- fail (printf "controllers: %q is not the name of a controller" (trimPrefix "-" .)) -}}
  {{- end -}}
{{- end -}}
{{- $items := list -}}
{{- range $entry := $all -}}
  {{- $names := append $entry.aliases $entry.name -}}
  {{- $wanted := and $entry.onByDefault (has "*" $words) -}}
  {{- $decided := false -}}
  {{- range $words -}}
    {{- if and (not $decided) (has (trimPrefix "-" .) $names) -}}
      {{- $decided = true -}}
      {{- $wanted = not (hasPrefix "-" .) -}}
    {{- end -}}
  {{- end -}}
  {{- range $entry.gates -}}
    {{- $open := get $gates . -}}
    {{- if and (not (hasKey $gates .)) (or (get $gates "AllAlpha") (get $gates "AllBeta")) -}}
      {{- $open = true -}}
    {{- end -}}
    {{- $wanted = and $wanted $open -}}
  {{- end -}}
  {{- if and $wanted $entry.runs -}}
    {{- $items = append $items $entry -}}
  {{- end -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}

{{/* Rules that only allow reading the resources in `rules`, as JSON: {"items": […]}. Subresources
are read with their objects, except for scales. */}}
{{- define "setpoint.readOnly" -}}
{{- $items := list -}}
{{- range $rule := .rules -}}
  {{- if not (hasKey $rule "nonResourceURLs") -}}
    {{- $resources := list -}}
    {{- range $resource := $rule.resources -}}
      {{- if ne $resource "events" -}}
        {{- $resources = append $resources (ternary $resource (splitList "/" $resource | first) (hasSuffix "/scale" $resource)) -}}
      {{- end -}}
    {{- end -}}
    {{- if $resources -}}
      {{- $read := dict "apiGroups" $rule.apiGroups "resources" (uniq $resources) "verbs" (list "get" "list" "watch") -}}
      {{- with $rule.resourceNames -}}
        {{- $read = merge (dict "resourceNames" . "verbs" (list "get")) $read -}}
      {{- end -}}
      {{- if not (has $read $items) -}}
        {{- $items = append $items $read -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}
