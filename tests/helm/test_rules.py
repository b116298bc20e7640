"""Alerts and the dashboard, read by Prometheus' own promtool: each alert fires for what it names, and not for a healthy node."""
import json
import subprocess

import pytest
import yaml

from tests.e2e import mesh
from tests.e2e.run import wait_for

from .chart import TOP, only, render
from .prometheus import RULES, DASHBOARD, free_port, panels, prometheus

ALERTS = {r['alert']: r for r in yaml.safe_load(RULES.read_text())['groups'][0]['rules']}
HEALTHY = {'agentd_control_plane_connected{control_plane="istiod"}': '1x120', 'agentd_csi_registered': '1x120',
           'agentd_crl_expiry_seconds{control_plane="istiod"}': '500000-60x120', 'agentd_crl_problem{control_plane="istiod"}': '0x120',
           'agentd_root_expiry_seconds{control_plane="istiod"}': '3000000-60x120', 'agentd_broker_silent_seconds': '0x120',
           'istio_agent_cert_expiry_seconds{namespace="demo",pod="web"}': '50000-60x120', 'agentd_worker_restarts_total': '1x120',
           'agentd_csr_requests_total{result="OK"}': '0+1x120', 'agentd_csr_requests_total{result="UNAVAILABLE"}': '3x120',
           'agentd_pods{state="not_ready"}': '0x120', 'agentd_pods{state="ready"}': '4x120', 'agentd_volumes_forgotten': '0x120',
           'agentd_pods_unserved{served="held"}': '0x120', 'agentd_pods_unserved{served="no"}': '0x120',
           'agentd_xds_refused_streams_total{code="UNAVAILABLE"}': '0+1x120', 'agentd_xds_refused_streams_total{code="UNKNOWN"}': '3x120',
           'envoy_listener_manager_total_listeners_warming{namespace="demo",pod="web"}': '0x120',
           'agentd_xds_refused_types{namespace="demo",pod="web"}': '0x120',
           'agentd_xds_remote_wasm{namespace="demo",pod="web",policy="closed"}': '0x120',
           'agentd_xds_remote_wasm{namespace="demo",pod="web",policy="open"}': '1x120',
           'agentd_redirect_open{namespace="demo",pod="web"}': '0x120', 'agentd_cage_level{protection="seccomp"}': '1x120',
           'agentd_redirect_connections_total{verdict="dropped",rule="no_memory"}': '0x120',
           'agentd_redirect_connections_total{verdict="dropped",rule="not_live"}': '0+1x120',
           'agentd_log_dropped_total{program="agentd"}': '0x120'}
# The series in place of the healthy one; counters begin at 0, or increase() would miss the first event.
BROKEN = {'AgentdControlPlaneNotConnected': ('agentd_control_plane_connected{control_plane="istiod"}', '0x120'),
          'AgentdRootExpires': ('agentd_root_expiry_seconds{control_plane="istiod"}', '1000000-60x120'),
          'AgentdRevocationListEnds': ('agentd_crl_expiry_seconds{control_plane="istiod"}', '20000-60x120'),
          'AgentdRevocationListFails': ('agentd_crl_problem{control_plane="istiod"}', '1x120'),
          'AgentdCertificateExpires': ('istio_agent_cert_expiry_seconds{namespace="demo",pod="web"}', '500-1x120'),
          'AgentdCsrsFail': ('agentd_csr_requests_total{result="UNAVAILABLE"}', '0+1x120'),
          'AgentdNotRegistered': ('agentd_csi_registered', '0x120'),
          'AgentdBrokerSilent': ('agentd_broker_silent_seconds', '60+60x120'),
          'AgentdWorkerRestarts': ('agentd_worker_restarts_total', '0x100 1 2 3 4 4x16'),
          'AgentdPodsNotReady': ('agentd_pods{state="not_ready"}', '2x120'),
          'AgentdPodsNotServed': ('agentd_pods_unserved{served="no"}', '1x120'),
          'AgentdNodeNotServed': ('agentd_pods_unserved{served="held"}', '4x120'),
          'AgentdStreamsRefused': ('agentd_xds_refused_streams_total{code="UNKNOWN"}', '0+1x120'),
          'AgentdVolumesForgotten': ('agentd_volumes_forgotten', '2x120'),
          'AgentdEnvoyWarms': ('envoy_listener_manager_total_listeners_warming{namespace="demo",pod="web"}', '1x120'),
          'AgentdConfigurationRefused': ('agentd_xds_refused_types{namespace="demo",pod="web"}', '1x120'),
          'AgentdWasmFilterDenies': ('agentd_xds_remote_wasm{namespace="demo",pod="web",policy="closed"}', '1x120'),
          'AgentdRedirectOpen': ('agentd_redirect_open{namespace="demo",pod="web"}', '1x120'),
          'AgentdRedirectLosesConnections': ('agentd_redirect_connections_total{verdict="dropped",rule="no_memory"}', '0x115 1x5'),
          'AgentdUnconfined': ('agentd_cage_level{protection="seccomp"}', '0x120'),
          'AgentdLogDropped': ('agentd_log_dropped_total{program="agentd"}', '0x115 7x5')}


@pytest.fixture(scope='module', name='promtool')
def fixture_promtool():
    path = subprocess.run([TOP / 'tests/tools/promtool'], capture_output=True, text=True, check=True).stdout.strip()

    def run(*args):
        r = subprocess.run([path, *args], capture_output=True, text=True, timeout=60, check=False)
        return r.returncode, r.stdout + r.stderr
    return run


def of_node(series):
    name, _, labels = series.partition('{')
    return f'{name}{{instance="n1"{"," if labels else ""}{labels or "}"}'


def firing(promtool, tmp_path, series):
    """The alerts that these series fire after two hours."""
    test = {'rule_files': [str(RULES)], 'evaluation_interval': '1m', 'tests': [{
        'interval': '1m', 'input_series': [{'series': of_node(s), 'values': v} for s, v in series.items()],
        'promql_expr_test': [{'expr': 'count by (alertname) (ALERTS{alertstate="firing"})', 'eval_time': '120m', 'exp_samples': [
            {'labels': '{alertname="Nothing"}', 'value': 1}]}]}]}
    file = tmp_path / 'test.yaml'
    file.write_text(yaml.safe_dump(test))
    code, said = promtool('test', 'rules', str(file))
    assert code and 'exp:' in said, said
    return {name for name in ALERTS if f'alertname="{name}"' in said.partition('got:')[2]}


def test_promtool_reads_the_rules(promtool):
    code, said = promtool('check', 'rules', str(RULES))
    assert code == 0 and f'{len(ALERTS)} rules found' in said, said


def test_a_healthy_node_fires_nothing(promtool, tmp_path):
    assert firing(promtool, tmp_path, HEALTHY) == set()


@pytest.mark.parametrize('alert', ALERTS)
def test_each_alert_fires_for_what_it_names(promtool, tmp_path, alert):
    series, values = BROKEN[alert]
    assert firing(promtool, tmp_path, {**HEALTHY, series: values}) == {alert}


def test_promtool_reads_each_expression_of_the_dashboard(promtool, tmp_path):
    targets = [expression for _, expression in panels()]
    file = tmp_path / 'rules.yaml'
    file.write_text(yaml.safe_dump({'groups': [{'name': 'all', 'rules': [
        {'record': f'panel:{i}', 'expr': e} for i, e in enumerate(targets)]}]}))
    code, said = promtool('check', 'rules', str(file))
    assert code == 0 and f'{len(targets)} rules found' in said, said


def test_the_chart_renders_both():
    objects = render(values=['everything'])
    rule, board = only(objects, 'PrometheusRule'), objects['ConfigMap', 'mesh-agent-dashboard']
    assert rule['spec'] == yaml.safe_load(RULES.read_text()) and rule['metadata']['labels']['release'] == 'prometheus'
    assert json.loads(board['data']['agentd.json']) == DASHBOARD and board['metadata']['labels']['grafana_dashboard'] == '1'
    assert not {'PrometheusRule'} & {kind for kind, _ in render()}


# What is there only when something is wrong.
OF_TROUBLE = ('Refused configuration (NACK)',)


def test_a_running_agentd_answers_each_expression(node, tmp_path):
    """Scraped by a real Prometheus: each panel shows something, each alert is evaluated, and none fires."""
    port = free_port()
    node.agentd.flags += ['--metrics', f'127.0.0.1:{port}']
    node.capture()
    node.start()
    pod = node.csi_pod('web')
    pod.sandbox()
    node.istiod.set(pod.id, **mesh.captured_client(pod))
    pod.start_envoy().wait_ready()
    with prometheus(node, f'127.0.0.1:{port}', tmp_path) as at:
        for panel, expression in panels():
            answer = wait_for(expression, lambda e=expression, p=panel: (found := at.ask('query', query=e)) is not None and (
                found['result'] or p['title'] in OF_TROUBLE) and found)
            assert answer['resultType'] == 'vector'
        rules = wait_for('all rules', lambda: (found := at.ask('rules')) and all(
            r['health'] == 'ok' for g in found['groups'] for r in g['rules']) and found['groups'][0]['rules'])
        assert {r['name'] for r in rules} == set(ALERTS)
        assert {r['name'] for r in rules if r['state'] == 'firing'} == set()
