// An email now, and a reminder three days later, unless the user has acted meanwhile.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { type Duration, nelkap } from 'nelkap';
import { handler } from 'nelkap/node';

interface User {
  id: string;
  email: string;
}

declare module 'nelkap' {
  interface Events {
    'user.registered': User;
    'profile.completed': { userId: string };
  }
}

// `--pause 10s` is for trying it out: nobody waits three days for an example.
const { values: settings } = parseArgs({
  options: { port: { type: 'string', default: '3000' }, pause: { type: 'string', default: '3 days' } },
});

export const welcomeUser = nelkap.workflow(
  { name: 'welcome user', on: { event: 'user.registered' } },
  async (user) => {
    await nelkap.step.run('welcome', () => sendEmail(user.email, 'Welcome! Tell us who you are.'));

    // Nothing is held meanwhile: no process, no connection. The run goes on in another call.
    await nelkap.step.sleep('time to act', settings.pause as Duration);

    // Events since the run's creation count, so one that came during the sleep is found at once.
    const completed = await nelkap.step.waitForEvent('profile completed', {
      event: 'profile.completed',
      match: { 'payload.userId': user.id },
      timeout: '5s',
    });
    if (completed !== null) return 'has acted';

    await nelkap.step.run('reminder', () => sendEmail(user.email, 'Your profile is still empty.'));
    return 'was reminded';
  },
);

function sendEmail(to: string, text: string): void {
  console.log(`email to ${to}: ${text}`);
}

createServer(handler({ workflows: [welcomeUser] })).listen(Number(settings.port), '127.0.0.1');
console.log(`process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap`);
