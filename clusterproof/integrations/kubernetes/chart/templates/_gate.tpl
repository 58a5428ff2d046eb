{{/* Where the gate runs, and as whom. */}}
{{- define "clusterproof.as-gate" -}}
tolerations:
  {{- toYaml .Values.gate.tolerations | nindent 2 }}
{{- with .Values.gate.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  nodeAffinity: # not where jobs run: who is root on a node has the tokens of its pods
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - { key: kubernetes.io/os, operator: In, values: [linux] }
            - { key: nvidia.com/gpu.present, operator: DoesNotExist }
            - { key: nvidia.com/gpu.product, operator: DoesNotExist }
            - { key: feature.node.kubernetes.io/pci-10de.present, operator: DoesNotExist }
            - { key: aws.amazon.com/neuron.present, operator: DoesNotExist }
            - { key: cloud.google.com/gke-accelerator, operator: DoesNotExist }
            - { key: k8s.amazonaws.com/accelerator, operator: DoesNotExist }
            - { key: karpenter.k8s.aws/instance-accelerator-count, operator: DoesNotExist }
            - { key: karpenter.k8s.aws/instance-gpu-count, operator: DoesNotExist }
            - { key: eks.amazonaws.com/instance-gpu-count, operator: DoesNotExist }
            - { key: kubernetes.azure.com/accelerator, operator: DoesNotExist }
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  {{- with .Values.evidence.volume }}
  fsGroup: 65532
  {{- end }}
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "clusterproof.hook" }}
  name: clusterproof-remove
  annotations:
    helm.sh/hook: post-delete
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
