{{- define "nelkap.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "nelkap.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nelkap.labels" -}}
{{ include "nelkap.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "nelkap.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}{{ .Values.serviceAccount.name }}{{- else if .Values.serviceAccount.create -}}{{ include "nelkap.name" . }}{{- else -}}default{{- end -}}
{{- end -}}

{{- define "nelkap.image" -}}
{{- $repository := required "set image.repository to an image that was built from deploy/Dockerfile" .Values.image.repository -}}
{{- if .Values.image.digest -}}{{ $repository }}@{{ .Values.image.digest }}{{- else -}}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end -}}
{{- end -}}

{{- /* Seconds. Where one node holds the store no other can take its requests, and each second of a drain is one more without a server. */ -}}
{{- define "nelkap.drain" -}}
{{- if .Values.postgres.enabled -}}{{ int .Values.drainSeconds }}{{- else -}}0{{- end -}}
{{- end -}}

{{- /* What can't work is refused before anything is installed. */ -}}
{{- define "nelkap.check" -}}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.postgres.enabled) -}}
{{- fail "replicaCount is more than 1, and the embedded store is of one node: set postgres.enabled=true and give NELKAP_STORE in existingSecret, or replicaCount=1" -}}
{{- end -}}
{{- end -}}

{{- /* The pods' template; `store` adds what differs. */ -}}
{{- define "nelkap.pod" -}}
{{- include "nelkap.check" . -}}
metadata:
  labels:
    {{- include "nelkap.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{- end }}
  {{- with .Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "nelkap.serviceAccount" . }}
  automountServiceAccountToken: false
  # A service of the name nelkap would become variables NELKAP_….
  enableServiceLinks: false
  # The drain, 5 s of a graceful stop, and some to spare.
  terminationGracePeriodSeconds: {{ add (include "nelkap.drain" . | int) 15 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  containers:
    - name: nelkap
      image: {{ include "nelkap.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - serve
        - --addr=:6355
        - --drain={{ include "nelkap.drain" . }}s
        {{- if not .Values.postgres.enabled }}
        - --store=/data
        {{- end }}
        {{- range .Values.apps }}
        - {{ printf "--app=%s" . | quote }}
        {{- end }}
        {{- range .Values.hooks }}
        - {{ printf "--hook=%s" . | quote }}
        {{- end }}
        {{- range .Values.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: NELKAP_URL
          value: {{ required "set url to the server's public address, such as https://nelkap.example.com" .Values.url | quote }}
      envFrom:
        - secretRef:
            name: {{ required "set existingSecret to a secret with NELKAP_SIGNING_KEY and NELKAP_API_KEY, and NELKAP_STORE where postgres.enabled" .Values.existingSecret }}
      ports:
        - { name: http, containerPort: 6355 }
      # A first start may migrate the store.
      startupProbe:
        httpGet: { path: /livez, port: http }
        periodSeconds: 2
        timeoutSeconds: 3
        failureThreshold: 150
      livenessProbe:
        httpGet: { path: /livez, port: http }
        periodSeconds: 10
        timeoutSeconds: 3
        failureThreshold: 6
      readinessProbe:
        httpGet: { path: /readyz, port: http }
        periodSeconds: 3
        timeoutSeconds: 3
        failureThreshold: 2
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      resources: {{- toYaml .Values.resources | nindent 8 }}
      {{- if not .Values.postgres.enabled }}
      volumeMounts:
        - { name: data, mountPath: /data }
      {{- end }}
  {{- if .Values.postgres.enabled }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "nelkap.selector" . | nindent 10 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
