package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

const chartDir = "helm/nelkap"

type values = map[string]any

// given are the values that have no default, and others over them.
func given(others ...values) values {
	all := values{"image": values{"repository": "registry.example.com/nelkap"}, "url": "https://nelkap.example.com", "existingSecret": "nelkap-keys"}
	for _, other := range others {
		maps.Copy(all, other)
	}
	return all
}

var postgres = values{"postgres": values{"enabled": true}, "replicaCount": 3}

// render gives what the chart installs, each read strictly as the kind that it is: a field that Kubernetes does not know is an error.
func render(t *testing.T, v values) (map[string]runtime.Object, error) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v) // as values come from YAML
	if err != nil {
		t.Fatal(err)
	}
	var plain values
	if err := yaml.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, plain, common.ReleaseOptions{Name: "nelkap", Namespace: "flows", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	objects := map[string]runtime.Object{}
	for name, text := range rendered {
		if strings.HasSuffix(name, ".txt") || strings.TrimSpace(text) == "" {
			continue
		}
		object, kind, err := decoder.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		objects[kind.Kind] = object
	}
	return objects, nil
}

func rendered(t *testing.T, v values) map[string]runtime.Object {
	t.Helper()
	objects, err := render(t, v)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func kind[T runtime.Object](t *testing.T, objects map[string]runtime.Object, name string) T {
	t.Helper()
	object, ok := objects[name].(T)
	if !ok {
		t.Fatalf("there is no %s: %v", name, slices.Sorted(maps.Keys(objects)))
	}
	return object
}

func TestHelmFindsNoFault(t *testing.T) {
	for name, v := range map[string]values{"one node": given(), "many": given(postgres)} {
		linted := lint.RunAll(chartDir, v, "flows")
		for _, message := range linted.Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, message)
			}
		}
	}
}

// pod checks what is the same of every node's pod, and gives its server's settings.
func pod(t *testing.T, template corev1.PodTemplateSpec, environ ...string) *corev1.Container {
	t.Helper()
	spec := template.Spec
	c := &spec.Containers[0]
	environ = append(environ, keys[:2]...) // the secret's
	for _, variable := range c.Env {
		environ = append(environ, variable.Name+"="+variable.Value)
	}
	s := served(t, c.Args, environ...)
	everywhere(t, s)
	stopsWithin(t, s, time.Duration(*spec.TerminationGracePeriodSeconds)*time.Second)
	others := s.Database != "" // nodes that take its requests
	if (s.Drain > 0) != others || len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef.Name != "nelkap-keys" || s.URL != "https://nelkap.example.com" {
		t.Errorf("drain %v, variables from %+v, url %s", s.Drain, c.EnvFrom, s.URL)
	}
	if fmt.Sprint(c.Ports[0].ContainerPort) != port(t) {
		t.Errorf("its port is %d", c.Ports[0].ContainerPort)
	}
	described := read(t, "../api/openapi.json")
	for what, probe := range map[string]struct {
		probe *corev1.Probe
		path  string
	}{"startup": {c.StartupProbe, "/livez"}, "liveness": {c.LivenessProbe, "/livez"}, "readiness": {c.ReadinessProbe, "/readyz"}} {
		if got := probe.probe.HTTPGet.Path; got != probe.path || !strings.Contains(described, `"`+got+`": {`) {
			t.Errorf("%s asks %s", what, got)
		}
	}
	// /readyz answers within 2 s, whatever the store does; a node that drains is out before it stops.
	if r := c.ReadinessProbe; r.TimeoutSeconds < 3 || others && time.Duration(r.PeriodSeconds*r.FailureThreshold)*time.Second > s.Drain {
		t.Errorf("readiness: %+v, and the drain is %v", r, s.Drain)
	}
	user := strings.Split(only[*instructions.UserCommand](t, stages(t)[1]).User, ":")[0]
	security, own := spec.SecurityContext, c.SecurityContext
	if !*security.RunAsNonRoot || fmt.Sprint(*security.RunAsUser) != user || fmt.Sprint(*security.FSGroup) != user || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		!*own.ReadOnlyRootFilesystem || *own.AllowPrivilegeEscalation || !slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) || *spec.AutomountServiceAccountToken {
		t.Errorf("it may do too much: %+v, %+v", security, own)
	}
	// Else a service of this name is a variable NELKAP_PORT of every pod, which the server would warn of.
	if *spec.EnableServiceLinks {
		t.Error("services become variables")
	}
	return c
}

func TestTheChartRunsOneNodeOnAVolume(t *testing.T) {
	objects := rendered(t, given(values{"apps": []string{"http://shop:3000/api/nelkap"}, "extraArgs": []string{"--lease=1m"}}))
	if objects["Deployment"] != nil || objects["PodDisruptionBudget"] != nil || objects["NetworkPolicy"] != nil {
		t.Errorf("there is more than asked for: %v", slices.Sorted(maps.Keys(objects)))
	}
	set := kind[*appsv1.StatefulSet](t, objects, "StatefulSet")
	c := pod(t, set.Spec.Template)
	// What the secret says must not lead the node away from its volume.
	s := served(t, c.Args, append(slices.Clone(keys), "NELKAP_STORE=postgres://nelkap@db/nelkap")...)
	if *set.Spec.Replicas != 1 || s.Data != "/data" || c.VolumeMounts[0].MountPath != s.Data || c.VolumeMounts[0].Name != set.Spec.VolumeClaimTemplates[0].Name || s.Lease != time.Minute || len(s.Apps) != 1 {
		t.Errorf("%d nodes, data in %s, mounts %v, %+v", *set.Spec.Replicas, s.Data, c.VolumeMounts, s)
	}
	service := kind[*corev1.Service](t, objects, "Service")
	for name, value := range service.Spec.Selector {
		if set.Spec.Template.Labels[name] != value {
			t.Errorf("the service looks for %s=%s", name, value)
		}
	}
	if service.Spec.Ports[0].TargetPort.StrVal != c.Ports[0].Name {
		t.Errorf("the service leads to %v", service.Spec.Ports)
	}
}

func TestTheChartRunsManyNodesOnPostgres(t *testing.T) {
	hooked := given(postgres, values{"hooks": []string{"pay=stripe,dedupe"}, "networkPolicy": values{"enabled": true, "ingressFrom": []values{{"namespaceSelector": values{}}}}, "drainSeconds": 60})
	objects := rendered(t, hooked)
	if objects["StatefulSet"] != nil {
		t.Error("there is a StatefulSet too")
	}
	deployment := kind[*appsv1.Deployment](t, objects, "Deployment")
	c := pod(t, deployment.Spec.Template, "NELKAP_STORE=postgres://nelkap@db/nelkap", "NELKAP_HOOK_PAY_SECRET=whsec_0123456789abcdef0123456789abcdef")
	rolling := deployment.Spec.Strategy.RollingUpdate
	if *deployment.Spec.Replicas != 3 || len(c.VolumeMounts) != 0 || rolling.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%d nodes, mounts %v, %+v", *deployment.Spec.Replicas, c.VolumeMounts, rolling)
	}
	budget := kind[*policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget")
	policy := kind[*networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")
	for name, selector := range map[string]map[string]string{"the budget": budget.Spec.Selector.MatchLabels, "the policy": policy.Spec.PodSelector.MatchLabels, "the deployment": deployment.Spec.Selector.MatchLabels} {
		for label, value := range selector {
			if len(selector) == 0 || deployment.Spec.Template.Labels[label] != value {
				t.Errorf("%s looks for %s=%s", name, label, value)
			}
		}
	}
	if len(policy.Spec.Ingress) != 1 || len(policy.Spec.Ingress[0].From) != 1 {
		t.Errorf("%+v", policy.Spec.Ingress)
	}
}

// What can't work is refused before it is installed, and the refusal says what to do.
func TestTheChartRefusesWhatCannotWork(t *testing.T) {
	without := func(name string) values { v := given(); delete(v, name); return v }
	for name, c := range map[string]struct {
		values values
		want   string
	}{
		"many nodes on one volume": {given(values{"replicaCount": 2}), "postgres.enabled=true"},
		"no secret":                {without("existingSecret"), "existingSecret"},
		"no url":                   {without("url"), "url"},
		"no image":                 {without("image"), "image.repository"},
		"a slip":                   {given(values{"replicas": 3}), "replicas"},
		"no node":                  {given(values{"replicaCount": 0}), "replicaCount"},
		"a text for a number":      {given(values{"replicaCount": "two"}), "replicaCount"},
		"a url that is none":       {given(values{"url": "nelkap.example.com"}), "url"},
		"keys as values":           {given(values{"signingKey": "x"}), "signingKey"},
		"an app without a scheme":  {given(values{"apps": []string{"shop:3000"}}), "apps"},
		"an endless drain":         {given(values{"drainSeconds": 301}), "drainSeconds"},
	} {
		if objects, err := render(t, c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d objects, %v", name, len(objects), err)
		}
	}
}

// Every value is in the schema, and the other way round: a slip in either would go unseen.
func TestTheChartsValuesAreDescribed(t *testing.T) {
	var described struct{ Properties map[string]any }
	var there values
	if err := json.Unmarshal([]byte(read(t, chartDir+"/values.schema.json")), &described); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(read(t, chartDir+"/values.yaml")), &there); err != nil {
		t.Fatal(err)
	}
	delete(described.Properties, "global") // Helm's own
	if a, b := slices.Sorted(maps.Keys(described.Properties)), slices.Sorted(maps.Keys(there)); !slices.Equal(a, b) {
		t.Errorf("the schema has %v, the values are %v", a, b)
	}
}
