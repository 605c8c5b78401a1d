// Executions: the list with its filters, and one of them in detail.
import { place, type ScreenProps } from '../kit';
import { ExecutionDetail } from './executions/detail';
import { ExecutionTable } from './executions/list';

export default function Executions({ params }: ScreenProps) {
  void place.value;
  return params.id === undefined ? <ExecutionTable /> : <ExecutionDetail key={params.id} id={params.id} />;
}
