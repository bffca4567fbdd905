import {
  handler as nodeHandler,
  type NodeHandlerOptions,
  type NodeRequest,
  type NodeResponse,
} from './node.js';

/**
 * The handler for Express: `app.use('/api/nelkap', handler({ workflows }))`. It works before and after `express.json()`,
 * which leaves Nelkap's content type alone. It answers every request itself and never calls `next`.
 */
export function handler(
  options: NodeHandlerOptions,
): (
  request: NodeRequest & { originalUrl?: string; body?: unknown },
  response: NodeResponse,
  next?: (error?: any) => void,
) => Promise<void> {
  return nodeHandler(options);
}
