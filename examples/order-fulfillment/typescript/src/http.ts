/** One request with a JSON answer. An answer that is no success throws, so that the step is tried again. */
export async function request<Answer>(url: URL, init: RequestInit = {}): Promise<Answer> {
  const response = await fetch(url, init);
  const text = await response.text();
  if (!response.ok)
    throw new Error(`${init.method ?? 'GET'} ${url.pathname} was answered ${response.status}: ${text}`);
  return JSON.parse(text) as Answer;
}

export function postJson(body: unknown, headers: Record<string, string> = {}): RequestInit {
  return {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(body),
  };
}
