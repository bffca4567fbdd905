// A person decides: the run waits for an answer to a link, for three days at most.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { type Duration, nelkap } from 'nelkap';
import { handler } from 'nelkap/node';

interface Expense {
  by: string;
  amount: number;
}

// `--timeout 30s` is for trying it out.
const { values: settings } = parseArgs({
  options: { port: { type: 'string', default: '3000' }, timeout: { type: 'string', default: '3 days' } },
});

export const approveExpense = nelkap.workflow('approve expense', async (expense: Expense) => {
  // The link exists from here on, and its time runs. It is the same one in every call of the run.
  const approval = await nelkap.step.callback<{ decision: string }>('approval', {
    timeout: settings.timeout as Duration,
  });

  // Opened in a browser, a link shows what it says and a button. The button answers, not the look at it.
  await nelkap.step.run('mail', () => {
    const [yes, no] = [`${approval.url}?decision=approved`, `${approval.url}?decision=declined`];
    sendEmail(
      'manager@example.com',
      `${expense.by} spent ${expense.amount}: approve ${yes} or decline ${no}`,
    );
  });

  const answer = await approval.wait();
  const outcome = answer === null ? 'timed out' : answer.decision;
  await nelkap.step.run('outcome', () => {
    sendEmail(expense.by, `Your expense of ${expense.amount}: ${outcome}.`);
  });
  return outcome;
});

function sendEmail(to: string, text: string): void {
  console.log(`email to ${to}: ${text}`);
}

createServer(handler({ workflows: [approveExpense] })).listen(Number(settings.port), '127.0.0.1');
console.log(`process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap`);
