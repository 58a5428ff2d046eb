{{- define "clusterproof.settings" -}}
CLUSTER: {{ .Values.cluster | quote }}
MODE: {{ .Values.mode | quote }}
EVERY: {{ .Values.everySeconds | quote }}
{{- $options := list }}
{{- with .Values.startupTaint }}{{ $options = append $options (printf "--k8s-startup-taint=%s" .) }}{{ end }}
{{- with .Values.evidence.volume }}{{ $options = append $options "--k8s-evidence=/evidence" }}{{ end }}
{{- $most := ternary "" (toString .Values.maxTainted) (kindIs "invalid" .Values.maxTainted) }}{{/* 0 is no default */}}
{{- if and $most (eq .Values.mode "taint") }}{{ $options = append $options (printf "--k8s-max-tainted=%s" $most) }}{{ end }}
OPTIONS: {{ concat $options .Values.options | join " " | quote }}
{{- end }}

{{- define "clusterproof.checksum" -}}
{{ printf "%s%s" (include "clusterproof.settings" .) .Values.policy | sha256sum }}
{{- end }}
