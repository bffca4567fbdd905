import { openDatabase } from './database.js';
import { connectStripe } from './payment.js';
import { settings } from './settings.js';

/** What the workflows work with, opened once per process. */
export const outside = settings.outside;
export const stripe = connectStripe(settings.outside);
export const database = await openDatabase(settings.data);
