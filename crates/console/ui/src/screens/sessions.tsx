// Sessions: the list, and one with its terminal, files, cells, conversation and grants.
import type { ScreenProps } from '../kit';
import { SessionPage } from './sessions/detail';
import { SessionList } from './sessions/list';

export default function Sessions({ params }: ScreenProps) {
  return params.id === undefined ? <SessionList /> : <SessionPage id={params.id} key={params.id} />;
}
