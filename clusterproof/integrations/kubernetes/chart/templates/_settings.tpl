{{- define "clusterproof.settings" -}}
CLUSTER: {{ .Values.cluster | quote }}
MODE: {{ .Values.mode | quote }}
EVERY: {{ .Values.everySeconds | quote }}
{{- $options := list }}
{{- with .Values.startupTaint }}{{ $options = append $options (printf "--k8s-startup-taint=%s" .) }}{{ end }}
{{- with .Values.evidence.volume }}{{ $options = append $options "--k8s-evidence=/evidence" }}{{ end }}
{{- if eq .Values.mode "taint" }}{{ with .Values.maxTainted }}{{ $options = append $options (printf "--k8s-max-tainted=%s" .) }}{{ end }}{{ end }}
OPTIONS: {{ concat $options .Values.options | join " " | quote }}
{{- end }}

{{- define "clusterproof.checksum" -}}
{{ printf "%s%s" (include "clusterproof.settings" .) .Values.policy | sha256sum }}
{{- end }}
